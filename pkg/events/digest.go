package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/rondo-run/rondo/internal/x/plural"
)

// Digest replaces confidential text or data in logs by its length and the first digits of its hash,
// by which equal texts can be recognized. A short text can be guessed from that, so it does not
// protect data with few possible values.
func Digest[T ~string | ~[]byte](data T) string {
	hash := sha256.Sum256([]byte(data))
	return fmt.Sprintf("(%s, sha256 %s…)", plural.Count(len(data), "byte"), hex.EncodeToString(hash[:4]))
}
