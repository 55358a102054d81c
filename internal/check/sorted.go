package check

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

// sorter sorts records by their keys, and keeps the order in which those of one key were added. It
// keeps a bounded part in memory and the rest in files.
type sorter struct {
	dir     string
	records []record
	size    int
	runs    []*os.File
}

type record struct {
	key  string
	data []byte
}

const (
	// sortedAtOnce bounds the bytes in memory, maxRuns the number of files.
	sortedAtOnce = 4 << 20
	maxRuns      = 32
	// perRecord is the memory that a record needs besides its bytes.
	perRecord = 64
)

func (s *sorter) add(key string, data []byte) error {
	s.records = append(s.records, record{key, data})
	if s.size += len(key) + len(data) + perRecord; s.size < sortedAtOnce {
		return nil
	}
	return s.spill()
}

// spill writes the records in memory to a file.
func (s *sorter) spill() error {
	s.sort()
	if err := s.write(func(yield func(record, error) bool) {
		for _, r := range s.records {
			if !yield(r, nil) {
				return
			}
		}
	}); err != nil {
		return err
	}
	s.records, s.size = nil, 0
	if len(s.runs) < maxRuns {
		return nil
	}
	runs := s.runs
	s.runs = nil
	err := s.write(merged(runs, nil))
	return errors.Join(err, remove(runs))
}

func (s *sorter) sort() {
	slices.SortStableFunc(s.records, func(a, b record) int { return cmp.Compare(a.key, b.key) })
}

// write writes a run.
func (s *sorter) write(records iter.Seq2[record, error]) error {
	f, err := os.CreateTemp(s.dir, "rondo-check-*")
	if err != nil {
		return err
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, 64<<10)
	for r, err := range records {
		if err != nil {
			return err
		}
		if _, err := writeRecord(w, r); err != nil {
			return err
		}
	}
	return w.Flush()
}

// all yields all records in order.
func (s *sorter) all() iter.Seq2[record, error] {
	s.sort()
	return merged(s.runs, s.records)
}

func (s *sorter) close() error {
	runs := s.runs
	s.runs = nil
	return remove(runs)
}

func remove(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close(), os.Remove(f.Name()))
	}
	return errors.Join(errs...)
}

// writeRecord writes a record, and returns its length.
func writeRecord(w io.Writer, r record) (int64, error) {
	head := binary.AppendUvarint(nil, uint64(len(r.key)))
	head = append(head, r.key...)
	head = binary.AppendUvarint(head, uint64(len(r.data)))
	if _, err := w.Write(head); err != nil {
		return 0, err
	}
	_, err := w.Write(r.data)
	return int64(len(head) + len(r.data)), err
}

// readKey reads the key of the next record and the length of its data, which the caller must then
// read or skip. It returns io.EOF at the end.
func readKey(r *bufio.Reader) (key string, length uint64, err error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return "", 0, err
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", 0, cutOff(err)
	}
	length, err = binary.ReadUvarint(r)
	return string(text), length, cutOff(err)
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("a temporary file was cut off: %w", io.ErrUnexpectedEOF)
	}
	return err
}

func readRecord(r *bufio.Reader) (record, error) {
	key, length, err := readKey(r)
	if err != nil {
		return record{}, err
	}
	data := make([]byte, length)
	_, err = io.ReadFull(r, data)
	return record{key, data}, cutOff(err)
}

// merged yields the records of sorted runs, and of those in memory, in order.
func merged(runs []*os.File, last []record) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		var h heads
		for i, f := range runs {
			r := bufio.NewReaderSize(io.NewSectionReader(f, 0, 1<<62), 32<<10)
			h = append(h, &head{place: i, next: func() (record, error) { return readRecord(r) }})
		}
		h = append(h, &head{place: len(runs), next: func() (r record, err error) {
			if len(last) == 0 {
				return r, io.EOF
			}
			r, last = last[0], last[1:]
			return r, nil
		}})
		var bad error
		h = slices.DeleteFunc(h, func(x *head) bool {
			ok, err := x.advance()
			bad = errors.Join(bad, err)
			return !ok
		})
		heap.Init(&h)
		for len(h) > 0 && bad == nil {
			if !yield(h[0].record, nil) {
				return
			}
			var ok bool
			if ok, bad = h[0].advance(); ok {
				heap.Fix(&h, 0)
			} else {
				heap.Pop(&h)
			}
		}
		if bad != nil {
			yield(record{}, bad)
		}
	}
}

// head is where a run is read.
type head struct {
	record
	place int
	next  func() (record, error)
}

func (h *head) advance() (ok bool, err error) {
	h.record, err = h.next()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

// heads is a heap, the least key first.
type heads []*head

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	return h[i].key < h[j].key || h[i].key == h[j].key && h[i].place < h[j].place
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*head)) }
func (h *heads) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
