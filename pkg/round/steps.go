package round

// steps are the results of the inline steps of an execution.
type steps struct {
	closed   numbers       // those that have their result, or are not wanted any more
	failures map[int64]int // failed attempts of the others
}

// answered reports whether history has the result of an attempt of an inline step.
func (s *steps) answered(n int64, attempt int) bool {
	return s.closed.has(n) || attempt <= s.failures[n]
}

// fail notes that an attempt has failed.
func (s *steps) fail(n int64, attempt int) {
	if s.failures == nil {
		s.failures = make(map[int64]int, 1)
	}
	s.failures[n] = attempt
}

// close notes that a step has its result, or is not wanted any more.
func (s *steps) close(n int64) {
	s.closed.add(n)
	delete(s.failures, n)
}

// numbers is a set of numbers that are mostly 1, 2, 3, …
type numbers struct {
	upTo int64 // all of 1 … upTo are in
	more map[int64]struct{}
}

func (n *numbers) has(x int64) bool {
	_, ok := n.more[x]
	return x <= n.upTo || ok
}

func (n *numbers) add(x int64) {
	if n.has(x) {
		return
	}
	if x != n.upTo+1 {
		if n.more == nil {
			n.more = make(map[int64]struct{})
		}
		n.more[x] = struct{}{}
		return
	}
	for n.upTo++; len(n.more) > 0; n.upTo++ {
		if _, ok := n.more[n.upTo+1]; !ok {
			break
		}
		delete(n.more, n.upTo+1)
	}
}
