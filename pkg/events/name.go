package events

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ReservedPrefix begins the names that belong to the engine.
const ReservedPrefix = "rondo."

// CheckName validates the name of an orchestration, activity, event or mailbox.
func CheckName(what, name string) error {
	if isUsual(name) && len(name) <= MaxName {
		return nil
	}
	if err := checkText(what+" name", name, MaxName); err != nil {
		return err
	}
	if strings.HasPrefix(name, ReservedPrefix) {
		return fmt.Errorf("%s name %q: the prefix %q is reserved for the engine; choose another name", what, name,
			ReservedPrefix)
	}
	return nil
}

// isUsual recognizes a name of letters, digits, - and _ only, which can only be too long.
func isUsual(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return name != ""
}

// CheckInstance validates an instance id.
func CheckInstance(id string) error { return checkText("instance id", id, MaxInstanceID) }

// CheckChosenInstance is CheckInstance for an id that a person or a program chose: ids of the form
// the engine makes for children are not free to choose.
func CheckChosenInstance(id string) error {
	if err := CheckInstance(id); err != nil {
		return err
	}
	if isChildID(id) {
		return fmt.Errorf("instance id %q: an ending like %q is reserved for the ids of children; choose another id",
			id, id[strings.LastIndexByte(id, '~'):])
	}
	return nil
}

// CheckTag validates a worker tag.
func CheckTag(tag string) error { return checkText("tag", tag, MaxTag) }

// CheckSession validates a session id.
func CheckSession(id string) error { return checkText("session id", id, MaxTag) }

// CheckSessionOfTask validates the session id of a task. It refuses the ids of the engine, which
// CheckSession does not: a history may have one, and must fit the code that has written it.
func CheckSessionOfTask(id string) error {
	if err := CheckSession(id); err != nil {
		return err
	}
	if strings.HasPrefix(id, ReservedPrefix) {
		return fmt.Errorf("session id %q: the prefix %q is reserved for the engine; choose another id", id,
			ReservedPrefix)
	}
	return nil
}

// CheckText validates the key of a value or the id of a patch.
func CheckText(what, s string) error { return checkText(what, s, MaxValueKey) }

func checkText(what, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s: it is empty", what)
	case len(s) > most:
		return fmt.Errorf("%s %q: %d bytes are over the limit of %d; use a shorter one", what, cut(s, 40), len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s %q: it is not valid UTF-8", what, s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s %q: it contains %U, which does not print", what, s, r)
		}
	}
	return nil
}

// ChildID is the id of a child that was given none: the parent's id and the place in its history.
// Where that would be too long, as with children of children of children, a hash stands for the end
// of the parent's id.
func ChildID(parent string, execution, event int64) string {
	place := "~" + strconv.FormatInt(execution, 10) + "." + strconv.FormatInt(event, 10)
	if len(parent)+len(place) > MaxInstanceID {
		hash := fmt.Sprintf("%016x", SeenHash(parent))
		parent = cut(parent, MaxInstanceID-len(place)-len(hash)) + hash
	}
	return parent + place
}

func isChildID(id string) bool {
	_, place, ok := cutLast(id, '~')
	if !ok {
		return false
	}
	execution, event, ok := strings.Cut(place, ".")
	return ok && isNumber(execution) && isNumber(event)
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// IncarnationOf makes the name of one incarnation of an instance from what began it. A recreated
// instance gets another one, so that results of its former incarnation find nothing to answer.
func IncarnationOf(instance, startMessage string, at int64) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%d", instance, startMessage, at)
	return hex.EncodeToString(h.Sum(nil))
}

// SeenHash shortens a message id for [Started.Seen].
func SeenHash(messageID string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(messageID))
	return h.Sum64()
}

// IdempotencyKey names one activity call: it is the same for all its attempts and never the same
// for another call.
func IdempotencyKey(instance, incarnation string, execution, firstAttempt int64) string {
	b := make([]byte, 0, len(instance)+len(incarnation)+24)
	b = append(b, EncodeToken(instance)...)
	b = append(append(b, '/'), incarnation...)
	b = strconv.AppendInt(append(b, '/'), execution, 10)
	b = strconv.AppendInt(append(b, '/'), firstAttempt, 10)
	return string(b)
}

// Token names one attempt of an activity, for the program that completes it instead of the worker:
// <instance>/<incarnation>/<execution>-<event>.
func Token(instance string, ref Ref) string {
	return instance + "/" + ref.Incarnation + "/" + ref.Place()
}

// ParseToken reads what [Token] has written. The instance may have slashes in it, the rest has
// none.
func ParseToken(token string) (instance string, ref Ref, err error) {
	rest, place, ok := cutLast(token, '/')
	instance, incarnation, okIncarnation := cutLast(rest, '/')
	if !ok || !okIncarnation {
		return "", Ref{}, fmt.Errorf(
			"token %q: want <instance>/<incarnation>/<execution>-<event>, as the activity got it",
			cut(strings.ToValidUTF8(token, "?"), 64))
	}
	ref.Incarnation = incarnation
	ref.Execution, ref.Event, err = decodePlace(place)
	if err := errors.Join(err, checkText("incarnation", incarnation, MaxName), CheckInstance(instance)); err != nil {
		return "", Ref{}, fmt.Errorf("token %q: %w", cut(strings.ToValidUTF8(token, "?"), 64), err)
	}
	return instance, ref, nil
}

// EncodeToken makes any text fit into one token of a NATS subject. It percent-encodes all bytes
// other than ASCII letters, digits and -_~:@+=,/.
func EncodeToken(s string) string {
	plain := true
	for i := range len(s) {
		if !plainByte(s[i]) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		if c := s[i]; plainByte(c) {
			b.WriteByte(c)
		} else {
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

func plainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-_~:@+=,/", c) >= 0
}

// DecodeToken undoes EncodeToken. It takes other spellings, too: names of consumers have some.
// [Decode] refuses them in the subjects of messages.
func DecodeToken(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("subject token %q: %q is not two hex digits", s, s[i:])
		}
		b, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", fmt.Errorf("subject token %q: %q is not two hex digits", s, s[i:i+3])
		}
		out = append(out, b[0])
		i += 2
	}
	return string(out), nil
}
