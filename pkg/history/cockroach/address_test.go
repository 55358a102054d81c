package cockroach_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
)

// refusedOpen opens a store, which must fail. Nothing that the error says may have one of the
// secrets in it, in whatever way it is printed.
func refusedOpen(tb testing.TB, address string, want history.Class, says string, secrets ...string) {
	tb.Helper()
	timeout := time.Hour       // longer than the test: an error that is not to be tried again comes at once
	if want == history.Retry { // it is tried again for as long as that
		timeout = 300 * time.Millisecond
	}
	s, err := cockroach.Open(tb.Context(), address, cockroach.Options{ConnectTimeout: timeout})
	if err == nil {
		s.Close()
		tb.Fatal("it is open")
	}
	if history.ClassOf(err) != want || !strings.Contains(err.Error(), says) {
		tb.Errorf("%v: %v\nwant %v, and %q in it", history.ClassOf(err), err, want, says)
	}
	if strings.Contains(err.Error(), "gave up") != (want == history.Retry) {
		tb.Errorf("only what was tried again was given up: %v", err)
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, text := range []string{e.Error(), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e)} {
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					tb.Errorf("the password is in %T: %s", e, text)
				}
			}
		}
	}
}

// asKeywords writes the address of a database with keywords and values.
func asKeywords(tb testing.TB, address, user, password string) string {
	tb.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		tb.Fatal(err)
	}
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password)
	return fmt.Sprintf("host=%s port=%d dbname=%s user=%s password='%s' sslmode=disable", config.Host, config.Port,
		config.Database, user, quoted)
}

func changed(tb testing.TB, address string, change func(*url.URL)) string {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	change(u)
	return u.String()
}

// passwords are some that are not easily written into an address.
var passwords = []string{"secret", `se:cr@et/w?i#t%h &p=a'r"t\s`}

func TestWrongAddresses(t *testing.T) {
	pgtest.Need(t)
	address := pgtest.Database(t)
	conn := connect(t, address)
	for i, password := range passwords {
		t.Run(fmt.Sprint("password ", i), func(t *testing.T) {
			role, limited := asRole(t, conn, address, password)
			execute(t, conn, "GRANT CREATE ON SCHEMA public TO "+role)
			for _, a := range []string{limited, asKeywords(t, address, role, password)} {
				openStore(t, a, cockroach.Options{}).Close()
			}
			wrong := changed(t, limited, func(u *url.URL) { u.User = url.UserPassword(role, "wrong-"+password) })
			secrets := []string{password, url.QueryEscape(password), url.UserPassword("", password).String()}
			for _, a := range []string{wrong, asKeywords(t, address, role, "wrong-"+password)} {
				refusedOpen(t, a, history.Permanent, "check the user, the password", secrets...)
			}
			unknown := changed(t, limited, func(u *url.URL) { u.Path = "/nowhere" })
			refusedOpen(t, unknown, history.Permanent, "create it, or correct its name", secrets...)
			encrypted := changed(t, limited, func(u *url.URL) { u.RawQuery = "sslmode=verify-full" })
			refusedOpen(t, encrypted, history.Permanent, "turn TLS on at the server", secrets...)
			closed := changed(t, limited, func(u *url.URL) { u.Host = unused(t) })
			refusedOpen(t, closed, history.Retry, "does a server listen at 127.0.0.1:", secrets...)
		})
	}
	refusedOpen(t, "postgres://nobody:secret@"+silent(t)+"/rondo?sslmode=disable", history.Retry,
		"does a server listen at 127.0.0.1:", "secret")
	refusedOpen(t, "postgres://nobody:secret@"+selfSigned(t)+"/rondo?sslmode=verify-full", history.Permanent,
		"a certificate for that host", "secret")
}

// unused is the address of a port without a listener.
func unused(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silent is the address of a listener that never answers.
func silent(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// selfSigned is the address of a server with a certificate that no client trusts.
func selfSigned(tb testing.TB) string {
	web := httptest.NewTLSServer(nil)
	certificates := web.TLS.Certificates
	web.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 8) // for TLS
			if _, err := conn.Read(request); err == nil {
				_, err = conn.Write([]byte("S"))
				if err == nil {
					// the client refuses the certificate
					_ = tls.Server(conn, &tls.Config{Certificates: certificates}).Handshake()
				}
			}
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// TestMalformedAddresses shows that Open refuses a malformed address at once, and that the error
// has no part of the password, wherever the password seems to begin and to end.
func TestMalformedAddresses(t *testing.T) {
	cases := map[string]string{
		"no number as port":    "postgres://rondo:hunter2@db:port/rondo",
		"unknown sslmode":      "postgres://rondo:hunter2@db/rondo?sslmode=sometimes",
		"slash":                "postgres://rondo:hunter2/hunter2@db/rondo",
		"no host":              "postgres://rondo:hunter2",
		"at in the query":      "postgres://rondo@db:port/rondo?password=hunter2@hunter2",
		"a setting in it":      "postgres://rondo:hunter2&password=hunter2@db:port/rondo",
		"percent":              "postgres://rondo:hunter2%zzhunter2@db/rondo",
		"at and colon":         "postgres://rondo:hunter2:hunter2@hunter2@db:port/rondo",
		"bracket":              "postgres://rondo:hunter2@[db/rondo",
		"space":                "postgres://rondo:hunter2 hunter2@db:port/rondo",
		"in the query":         "postgres://rondo@db:port/rondo?password=hunter2&sslmode=disable",
		"percent in the query": "postgres://rondo@db/rondo?password=hunter2%zz",
		"no scheme":            "rondo:hunter2@db/rondo",
		"half a scheme":        "postgres:/rondo:hunter2@db/rondo",
		"other scheme":         "mysql://rondo:hunter2@db/rondo",
		"keywords":             "host=db password=hunter2 port=x",
		"keywords and spaces":  "host=db password = hunter2 port=x",
		"keywords and quotes":  `host=db password = 'hunter2\' hunter2' port=x`,
		"keywords and no end":  `host=db password='hunter2 port=x`,
		"capitals":             `host=db PASSWORD=hunter2 port`,
		"password of a key": "postgres://rondo@db/rondo?sslmode=verify-full&sslpassword=hunter2&" +
			"sslkey=/nowhere&sslcert=/nowhere",
		"pool":                   "postgres://rondo:hunter2@db/rondo?pool_max_conns=many",
		"pool without an end":    "postgres://rondo:hunter2@db/rondo?pool_max_conn_lifetime=hunger",
		"port in keywords":       "user=rondo password=hunter2 host=db port=0",
		"name of a pgpass entry": "db:5432:rondo:rondo:hunter2",
	}
	for name, address := range cases {
		t.Run(name, func(t *testing.T) {
			refusedOpen(t, address, history.Permanent,
				"postgres://user:password@host:26257/database?sslmode=verify-full", "hunter2")
		})
	}
	t.Run("what is wrong is told", func(t *testing.T) {
		refusedOpen(t, cases["unknown sslmode"], history.Permanent, "sslmode")
		refusedOpen(t, cases["slash"], history.Permanent, "%2F")
		refusedOpen(t, cases["pool"], history.Permanent, "pool_max_conns")
	})
}

// settingOf opens a store, and tells what a setting of its first connection is, and how many
// connections there may be.
func settingOf(t *testing.T, name, address string, options cockroach.Options) (value string, maxConns int32) {
	t.Helper()
	var values []string
	options.Configure = func(config *pgxpool.Config) {
		maxConns = config.MaxConns
		prepare := config.AfterConnect
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			if err := prepare(ctx, conn); err != nil {
				return err
			}
			var value string
			err := conn.QueryRow(ctx, "SHOW "+name).Scan(&value)
			values = append(values, value)
			return err
		}
	}
	openStore(t, address, options).Close()
	if len(values) == 0 {
		t.Fatal("nothing has connected")
	}
	return values[0], maxConns
}

// TestSettingsOfConnections shows what options and addresses set, and that addresses come before
// defaults.
func TestSettingsOfConnections(t *testing.T) {
	pgtest.Need(t)
	address := pgtest.Database(t)
	cases := []struct {
		name, address string
		options       cockroach.Options
		maxConns      int32
		timeout       string
	}{
		{"defaults", "", cockroach.Options{}, 8, "30s"},
		{"options", "", cockroach.Options{MaxConns: 3, StatementTimeout: 1500 * time.Millisecond}, 3, "1500ms"},
		{"address", "&pool_max_conns=5&statement_timeout=7000", cockroach.Options{}, 5, "7s"},
		{"both", "&pool_max_conns=5&statement_timeout=7000",
			cockroach.Options{MaxConns: 3, StatementTimeout: time.Minute}, 3, "7s"},
		{"the server's options", "&options=-c%20statement_timeout%3D9s", cockroach.Options{}, 8, "9s"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			timeout, maxConns := settingOf(t, "statement_timeout", address+c.address, c.options)
			if maxConns != c.maxConns {
				t.Errorf("%d connections, want %d", maxConns, c.maxConns)
			}
			if timeout != c.timeout {
				t.Errorf("statements may take %q, want %q", timeout, c.timeout)
			}
		})
	}
}

// TestTheAddressRaisesTheConnectTimeout shows that Open waits for a server as long as the address
// says for all of its hosts, if that is longer than its option.
func TestTheAddressRaisesTheConnectTimeout(t *testing.T) {
	short := cockroach.Options{ConnectTimeout: 5 * time.Second}
	for _, c := range []struct {
		name, address string
		options       cockroach.Options
		want          time.Duration
	}{
		{"nothing", "postgres://h/d", cockroach.Options{}, 30 * time.Second},
		{"the option", "postgres://h/d", short, 5 * time.Second},
		{"a shorter one", "postgres://h/d?connect_timeout=2", short, 5 * time.Second},
		{"a longer one", "postgres://h/d?connect_timeout=60", short, time.Minute},
		{"keywords", "host=h dbname=d connect_timeout=60", cockroach.Options{}, time.Minute},
		{"several hosts", "postgres://a,b:2,b:3/d?connect_timeout=20&sslmode=prefer", short, time.Minute},
	} {
		if got, err := cockroach.ConnectTimeout(c.address, c.options); err != nil || got != c.want {
			t.Errorf("%s: %v (%v), want %v", c.name, got, err, c.want)
		}
	}
}

// TestWhatIsWrittenSoon shows that the store sets backend_flush_after, so that the server writes
// dirty pages soon, unless the server, the database, the role or the address sets it.
func TestWhatIsWrittenSoon(t *testing.T) {
	pgtest.Need(t)
	cases := []struct {
		name    string
		server  []pgtest.Option
		before  string
		address string
		want    string
	}{
		{"nobody says anything", nil, "", "", "256kB"},
		{"the server", []pgtest.Option{pgtest.Setting("backend_flush_after", "0")}, "", "", "0"},
		{"the database", nil, "ALTER DATABASE %s SET backend_flush_after = 0", "", "0"},
		{"the role in this database", nil,
			"ALTER ROLE CURRENT_USER IN DATABASE %s SET backend_flush_after = '1MB'", "", "1MB"},
		{"the address", nil, "", "&options=-c%20backend_flush_after%3D64kB", "64kB"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var address string
			if c.server != nil {
				address = pgtest.Start(t, c.server...).Database(t)
			} else {
				address = pgtest.Database(t)
			}
			if c.before != "" {
				conn := connect(t, address)
				execute(t, conn, fmt.Sprintf(c.before, pgx.Identifier{conn.Config().Database}.Sanitize()))
			}
			if got, _ := settingOf(t, "backend_flush_after", address+c.address, cockroach.Options{}); got != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
		})
	}
}
