// Package smallmap has a map for what most often is a handful of values, of which there are very
// many: each instance that is kept in memory has two.
package smallmap

import (
	"maps"
	"slices"
)

// Map has values by number. The zero value is empty. Up to [Most] values lie side by side, and take
// a tenth of what a map takes for one; more of them are in a map. Absent ones are the zero value.
type Map[V any] struct {
	few  []pair[V]
	many map[int64]V // nil while they are few
}

type pair[V any] struct {
	number int64
	value  V
}

// Most is how many are few.
const Most = 8

// Len counts them.
func (m *Map[V]) Len() int { return len(m.few) + len(m.many) }

func (m *Map[V]) place(number int64) int {
	return slices.IndexFunc(m.few, func(p pair[V]) bool { return p.number == number })
}

// Get gives a value.
func (m *Map[V]) Get(number int64) (value V) {
	if m.many != nil {
		return m.many[number]
	}
	if i := m.place(number); i >= 0 {
		return m.few[i].value
	}
	return value
}

// Set sets a value.
func (m *Map[V]) Set(number int64, value V) {
	if m.many != nil {
		m.many[number] = value
		return
	}
	if i := m.place(number); i >= 0 {
		m.few[i].value = value
		return
	}
	if len(m.few) < Most {
		m.few = append(m.few, pair[V]{number, value})
		return
	}
	m.many = make(map[int64]V, 2*Most)
	for _, p := range m.few {
		m.many[p.number] = p.value
	}
	m.few = nil
	m.many[number] = value
}

// Delete removes a value, if it is there.
func (m *Map[V]) Delete(number int64) {
	if m.many != nil {
		if delete(m.many, number); len(m.many) == 0 {
			m.many = nil
		}
		return
	}
	if i := m.place(number); i >= 0 {
		m.few = slices.Delete(m.few, i, i+1)
	}
}

// Numbers lists those that have a value, in order.
func (m *Map[V]) Numbers() []int64 {
	if m.many != nil {
		return slices.Sorted(maps.Keys(m.many))
	}
	numbers := make([]int64, len(m.few))
	for i, p := range m.few {
		numbers[i] = p.number
	}
	slices.Sort(numbers)
	return numbers
}
