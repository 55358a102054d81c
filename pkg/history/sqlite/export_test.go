package sqlite

// WithDriver lets a driver of that name make the connections.
func (o Options) WithDriver(name string) Options {
	o.driver = name
	return o
}
