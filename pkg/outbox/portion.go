package outbox

import (
	"context"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// maxPortion bounds the bytes of the histories that are read at once. A larger history is read
// alone.
const maxPortion = 16 << 20

// portion says of which instances one load reads the histories: of those that are wanted, until
// they are large together. The rows of the others say how large theirs are.
type portion struct {
	wanted  func(instance string, row round.Row) bool
	bytes   int64
	decided map[string]bool // of those that are wanted
}

// admit is for [history.Rounds.Load], which may ask about an instance again.
func (p *portion) admit(instance string, row round.Row) bool {
	if !p.wanted(instance, row) {
		return false
	}
	fits, before := p.decided[instance]
	if !before {
		if fits = p.bytes == 0 || p.bytes+row.HistoryBytes <= maxPortion; fits {
			p.bytes += max(1, row.HistoryBytes)
		}
		p.decided[instance] = fits
	}
	return fits
}

// inPortions loads instances, and calls use with one portion of them after another. It reads the
// histories of those that are wanted.
func inPortions(ctx context.Context, store history.Rounds, ids []string,
	wanted func(instance string, row round.Row) bool, use func([]round.Known) error) error {
	sizes := make(map[string]int64) // as far as they are known
	for len(ids) > 0 {
		n, bytes := 0, int64(0)
		for n < min(len(ids), healPage) && (n == 0 || bytes+sizes[ids[n]] <= maxPortion) {
			bytes += sizes[ids[n]]
			n++
		}
		p := portion{wanted: wanted, decided: make(map[string]bool)}
		known, err := store.Load(ctx, ids[:n], p.admit)
		if err != nil {
			return err
		}
		var later []string
		read := known[:0]
		for _, k := range known {
			if fits, asked := p.decided[k.Instance]; asked && !fits {
				later = append(later, k.Instance)
				sizes[k.Instance] = k.Row.HistoryBytes
			} else {
				read = append(read, k)
			}
		}
		ids = append(later, ids[n:]...)
		if err := use(read); err != nil {
			return err
		}
	}
	return nil
}
