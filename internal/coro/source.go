package coro

// Source finds the code of orchestrations. Only types that embed a [Finder] implement it: so the
// registry of package orchestration gives its code to the engine, and users do not see [Func].
type Source interface {
	find(name, version string) (Func, bool)
}

// Finder finds the code of a name and version.
type Finder func(name, version string) (Func, bool)

func (f Finder) find(name, version string) (Func, bool) { return f(name, version) }

// Find finds the code of a name and version.
func Find(s Source, name, version string) (Func, bool) { return s.find(name, version) }
