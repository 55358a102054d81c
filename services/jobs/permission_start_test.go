package jobserver_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// Callers that manage queues may set only the starts that the access file lists for these queues,
// whatever settings the queue has already.
func TestManagingAQueueDoesNotStartEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, `
callers:
  - {name: tenant, token_sha256: [%x], allow: [{queues: [tenant-*], permissions: ["*"]}]}
  - name: mailer
    token_sha256: [%x]
    allow:
      - {queues: [mail-*], permissions: [push, manage], start: [send-*, digest]}
      - {queues: [other], permissions: ["*"]}
  - {name: operators, token_sha256: [%x], allow: [{queues: ["*"], permissions: ["*"], start: ["*"]}]}
`, sha256.Sum256([]byte("tenant")), sha256.Sum256([]byte("mailer")), sha256.Sum256([]byte("operators"))),
		0o600); err != nil {
		t.Fatal(err)
	}
	access, err := jobserver.OpenAccess(path, silence)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, end := serve(t, db.Queues(), jobserver.Config{Access: access})
	defer end()
	const pays = `{"start":{"orchestration":"pay-salaries"}}`
	for _, step := range []struct {
		caller, queue, settings string
		status                  int
		starts                  string // what the queue starts afterwards
	}{
		{"tenant", "tenant-1", pays, 403, ""},
		{"tenant", "tenant-1", `{"max_attempts":3}`, 200, ""},
		{"operators", "tenant-1", pays, 200, "pay-salaries"},
		{"tenant", "tenant-1", pays, 403, "pay-salaries"}, // also if the queue has it already
		{"tenant", "tenant-1", `{"max_attempts":3}`, 200, ""},
		{"tenant", "tenant-1", pays, 403, ""},
		{"mailer", "mail-1", `{"start":{"orchestration":"send-one","version":"2"}}`, 200, "send-one"},
		{"mailer", "mail-1", `{"start":{"orchestration":"digest","max_per_second":1}}`, 200, "digest"},
		{"mailer", "mail-1", `{"start":{"orchestration":"digests"}}`, 403, "digest"},
		{"mailer", "mail-1", pays, 403, "digest"},
		{"mailer", "other", `{"start":{"orchestration":"digest"}}`, 403, ""}, // listed for other queues
	} {
		r, err := http.NewRequest(http.MethodPut, s.url+"/queue/"+step.queue, strings.NewReader(step.settings))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+step.caller)
		got := s.send(r)
		if got.status != step.status {
			t.Errorf("%s puts %s to %s: %d %s; want %d", step.caller, step.settings, step.queue, got.status, got.text,
				step.status)
		}
		if step.status == 403 && (got.body["error_code"] != "FORBIDDEN" ||
			!strings.Contains(got.text, step.caller+" may not have queue "+step.queue+" start ")) {
			t.Errorf("the refusal does not name caller and queue: %s", got.text)
		}
		info, err := db.Queues().Look(t.Context(), step.queue)
		if step.starts == "" && err != nil {
			continue // there is no such queue
		}
		if start := info.Settings.Start; err != nil || startOf(start) != step.starts {
			text, _ := json.Marshal(start) // a struct of texts and a number always has a form
			t.Errorf("after %s of %s: %s starts %s, %v; want %q", step.settings, step.caller, step.queue, text, err,
				step.starts)
		}
	}
}

func startOf(s *jobs.Start) string {
	if s == nil {
		return ""
	}
	return s.Orchestration
}
