package jobserver_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"
)

// This file checks the document that specifies queues with acknowledgement: its tables, its
// examples, and its edge cases, in its order and by its names.

// start is the time of the tests' clock when they begin, as answers write it.
const start = 1709139215.0

// ---- HTTP status codes.

func TestStatusCodes(t *testing.T) {
	for _, row := range []struct {
		scenario string
		run      func(s *service)
	}{
		{"pop without ack (success)", func(s *service) {
			s.push("q", 0, 1)
			s.post("/queue/q/pop", "").is(200,
				map[string]any{"items": ids(1), "count": 1, "locked": nil, "lock_id": nil, "lock_expires_at": nil})
		}},
		{"pop with ack (success)", func(s *service) {
			s.push("q", 0, 1)
			s.post("/queue/q/pop?require_ack=true", "").is(200,
				map[string]any{"items": ids(1), "count": 1, "locked": true, "lock_expires_at": start + 30})
		}},
		{"pop with ack (queue locked)", func(s *service) {
			s.push("q", 0, 1, 2)
			s.lock("q", "", 1)
			r := s.post("/queue/q/pop?require_ack=true", "").is(423,
				map[string]any{"message": "Queue is locked pending acknowledgement", "lock_expires_at": start + 30,
					"items": nil})
			if after := r.header.Get("Retry-After"); after != "30" {
				s.t.Errorf("Retry-After: %q", after)
			}
		}},
		{"acknowledge (success)", func(s *service) {
			s.push("q", 0, 1, 2)
			id := s.lock("q", "count=2", 1, 2)
			s.post("/queue/q/acknowledge", body("lock_id", id)).is(200,
				map[string]any{"success": true, "message": "Items acknowledged successfully", "items_acknowledged": 2})
		}},
		{"acknowledge (expired lock)", func(s *service) {
			s.push("q", 0, 1)
			id := s.lock("q", "", 1)
			s.clock.move(30 * time.Second)
			s.post("/queue/q/acknowledge", body("lock_id", id)).is(410,
				map[string]any{"success": false, "message": "Lock has expired", "error_code": "LOCK_EXPIRED"})
		}},
		{"acknowledge (lock not found)", func(s *service) {
			s.push("q", 0, 1)
			s.post("/queue/q/acknowledge", body("lock_id", "abc123def45")).is(404,
				map[string]any{"success": false, "message": "No active lock found"})
			s.post("/queue/nobody/acknowledge", body("lock_id", "abc123def45")).is(404,
				map[string]any{"success": false, "message": "No active lock found"})
		}},
		{"acknowledge (invalid lock_id)", func(s *service) {
			s.push("q", 0, 1)
			s.lock("q", "", 1)
			s.post("/queue/q/acknowledge", body("lock_id", "abc123def45")).is(400,
				map[string]any{"success": false, "message": "Invalid lock_id"})
		}},
		{"acknowledge (missing lock_id)", func(s *service) {
			s.push("q", 0, 1)
			s.lock("q", "", 1)
			for _, b := range []string{"{}", `{"lock_id": ""}`, `{"lock_id": null}`} {
				s.post("/queue/q/acknowledge", b).is(400,
					map[string]any{"success": false, "message": "lock_id is required"})
			}
		}},
	} {
		t.Run(row.scenario, func(t *testing.T) { onEach(t, func(t *testing.T, s *service) { row.run(s) }) })
	}
}

// ---- PopWithAck and Acknowledge, step by step.

func TestTimeOfALock(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		for _, c := range []struct {
			query string
			want  float64
		}{{"", 30}, {"ttl_seconds=60", 60}, {"ttl_seconds=1", 1}, {"ttl_seconds=300", 300}, {"ttl_seconds=0", 1},
			{"ttl_seconds=-5", 1}, {"ttl_seconds=301", 300}, {"ttl_seconds=99999999999999999999", 300},
			{"ttl_seconds=", 30}} {
			s.push("q", 0, 1)
			r := s.post("/queue/q/pop?require_ack=true&"+c.query, "").is(200,
				map[string]any{"lock_expires_at": start + c.want})
			s.post("/queue/q/acknowledge", body("lock_id", r.string("lock_id"))).is(200, nil)
		}
		for _, bad := range []string{"ttl_seconds=soon", "ttl_seconds=1.5", "require_ack=perhaps", "count=0",
			"count=1001", "count=x", "mode=other", "ttl=5"} {
			s.post("/queue/q/pop?"+bad, "").is(400, map[string]any{"success": false, "error_code": "INVALID_REQUEST"})
		}
	})
}

func TestLockIDs(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		form, seen := regexp.MustCompile(`^[A-Za-z0-9_-]{11}$`), make(map[string]bool)
		for range 20 {
			s.push("q", 0, 1)
			id := s.lock("q", "", 1)
			if !form.MatchString(id) || seen[id] {
				t.Errorf("the id of a lock is %q", id)
			}
			seen[id] = true
			s.post("/queue/q/acknowledge", body("lock_id", id)).is(200, nil)
		}
	})
}

// TestDecisionsInTheirOrder: no lock, then an expired one whatever id is given, then another id,
// then the right one.
func TestDecisionsInTheirOrder(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.push("q", 0, 1)
		first := s.lock("q", "ttl_seconds=5", 1)
		s.post("/queue/q/acknowledge", body("lock_id", "another")).is(400, map[string]any{"message": "Invalid lock_id"})
		s.clock.move(5 * time.Second)
		s.post("/queue/q/acknowledge", body("lock_id", "another")).is(410, map[string]any{"error_code": "LOCK_EXPIRED"})
		s.post("/queue/q/acknowledge", body("lock_id", first)).is(404,
			map[string]any{"message": "No active lock found"})
		second := s.lock("q", "", 1)
		s.post("/queue/q/acknowledge", body("lock_id", first)).is(400, map[string]any{"message": "Invalid lock_id"})
		s.post("/queue/q/acknowledge", body("lock_id", second)).is(200, map[string]any{"items_acknowledged": 1})
		s.post("/queue/q/acknowledge", body("lock_id", second)).is(404, nil)
	})
}

// ---- The four examples.

func TestExamples(t *testing.T) {
	for _, example := range []struct {
		name string
		run  func(s *service)
	}{
		{"1: basic acknowledgement flow", func(s *service) {
			s.post("/queue/my-queue/push", `{"item": {"task_id": 123, "action": "send_email"}}`).is(200,
				map[string]any{"success": true})
			r := s.post("/queue/my-queue/pop?require_ack=true", "").is(200,
				map[string]any{"items": []any{map[string]any{"task_id": 123, "action": "send_email"}}})
			s.post("/queue/my-queue/acknowledge", body("lock_id", r.string("lock_id"))).is(200,
				map[string]any{"success": true, "items_acknowledged": 1})
			s.post("/queue/my-queue/pop", "").is(200, map[string]any{"items": []any{}, "count": 0})
		}},
		{"2: lock prevents concurrent pops", func(s *service) {
			s.push("test", 0, 1, 2)
			s.lock("test", "", 1)
			s.post("/queue/test/pop", "").is(423,
				map[string]any{"message": "Queue is locked pending acknowledgement", "lock_expires_at": start + 30})
		}},
		{"3: automatic expiration", func(s *service) {
			s.push("test", 0, 1)
			id := s.lock("test", "ttl_seconds=5", 1)
			s.clock.move(6 * time.Second)
			s.post("/queue/test/acknowledge", body("lock_id", id)).is(410,
				map[string]any{"success": false, "error_code": "LOCK_EXPIRED"})
			s.lock("test", "", 1)
		}},
		{"4: backwards compatibility", func(s *service) {
			s.push("test", 0, 1, 2, 3, 4, 5)
			s.post("/queue/test/pop?count=5", "").is(200,
				map[string]any{"items": ids(1, 2, 3, 4, 5), "count": 5, "lock_id": nil, "locked": nil})
			s.post("/queue/test/pop", "").is(200, map[string]any{"items": []any{}, "count": 0})
		}},
	} {
		t.Run(example.name, func(t *testing.T) { onEach(t, func(t *testing.T, s *service) { example.run(s) }) })
	}
}

// ---- Edge cases.

func TestEdgeCases(t *testing.T) {
	for _, edge := range []struct {
		name string
		run  func(s *service)
	}{
		{"1: pop while locked", func(s *service) {
			s.push("q", 0, 1, 2)
			s.lock("q", "", 1)
			for _, query := range []string{"?require_ack=true", "", "?require_ack=true&mode=concurrent",
				"?mode=concurrent"} {
				s.post("/queue/q/pop"+query, "").is(423, map[string]any{"lock_expires_at": start + 30})
			}
			s.ask("GET", "/queue/q/depth", "").is(200, map[string]any{"depth": 1, "locked_items": 1})
		}},
		{"2: acknowledge expired lock", func(s *service) {
			s.push("q", 3, 1, 2)
			id := s.lock("q", "ttl_seconds=1", 1)
			s.clock.move(time.Second)
			s.post("/queue/q/acknowledge", body("lock_id", id)).is(410, nil)
			s.ask("GET", "/queue/q/depth", "").is(200,
				map[string]any{"priorities": map[string]int{"3": 2}, "locked_items": 0})
		}},
		{"3: acknowledge invalid lock id", func(s *service) {
			s.push("q", 0, 1)
			id := s.lock("q", "", 1)
			s.post("/queue/q/acknowledge", body("lock_id", id+"x")).is(400, nil)
			s.post("/queue/q/pop", "").is(423, nil) // it is still there
			s.post("/queue/q/acknowledge", body("lock_id", id)).is(200, nil)
		}},
		{"4: empty queue with acknowledgement", func(s *service) {
			empty := map[string]any{"items": []any{}, "count": 0, "locked": false, "lock_id": nil,
				"lock_expires_at": nil}
			s.post("/queue/never/pop?require_ack=true", "").is(200, empty)
			s.push("q", 0, 1)
			s.post("/queue/q/pop", "").is(200, nil)
			s.post("/queue/q/pop?require_ack=true", "").is(200, empty)
			s.push("q", 0, 2)
			s.post("/queue/q/pop", "").is(200, map[string]any{"items": ids(2)}) // no lock was made
		}},
		{"5: lock expiration during processing", func(s *service) {
			s.push("q", 1, 11, 12)
			s.push("q", 0, 1, 2)
			s.lock("q", "count=3&ttl_seconds=10", 1, 2, 11)
			s.push("q", 0, 3)
			s.push("q", 1, 13)
			s.clock.move(10 * time.Second)
			s.post("/queue/q/pop?count=6", "").is(200, map[string]any{"items": ids(1, 2, 3, 11, 12, 13)})
		}},
		{"6: deactivation with active lock", func(s *service) {
			s.push("q", 0, 1, 2)
			id := s.lock("q", "ttl_seconds=60", 1)
			s = s.again()
			s.post("/queue/q/pop", "").is(423, map[string]any{"lock_expires_at": start + 60})
			s.post("/queue/q/acknowledge", body("lock_id", id)).is(200, map[string]any{"items_acknowledged": 1})
			s.lock("q", "ttl_seconds=60", 2)
			s = s.again()
			s.clock.move(60 * time.Second)
			s.post("/queue/q/pop", "").is(200, map[string]any{"items": ids(2)})
		}},
		{"7: multiple items in single lock", func(s *service) {
			s.push("q", 0, 1)
			s.push("q", 1, 2)
			id := s.lock("q", "count=10", 1, 2)
			s.post("/queue/q/acknowledge", body("lock_id", id)).is(200, map[string]any{"items_acknowledged": 2})
			s.ask("GET", "/queue/q", "").is(200, map[string]any{"depth": 0, "locked_items": 0, "locks": 0})
		}},
	} {
		t.Run(edge.name, func(t *testing.T) { onEach(t, func(t *testing.T, s *service) { edge.run(s) }) })
	}
}

// TestFrontOfThePriority: jobs of an expired lock go to the front of their own priority, in the
// order in which they were.
func TestFrontOfThePriority(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.push("q", 2, 21, 22, 23)
		for n := range 3 {
			s.lock("q", "count=2&ttl_seconds=1", 21, 22)
			s.clock.move(time.Second)
			if n == 1 {
				s.push("q", 2, 24)
			}
		}
		s.push("q", 0, 1)
		s.post("/queue/q/pop?count=10", "").is(200, map[string]any{"items": ids(1, 21, 22, 23, 24)})
	})
}

// ---- Beyond the document.

func TestConcurrentLocks(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.push("q", 0, 1, 2, 3, 4)
		a := s.lock("q", "mode=concurrent&ttl_seconds=10", 1)
		b := s.lock("q", "mode=concurrent&ttl_seconds=20", 2)
		s.post("/queue/q/pop?require_ack=true", "").is(423, map[string]any{"lock_expires_at": start + 20})
		s.post("/queue/q/pop", "").is(423, nil)
		s.post("/queue/q/pop?mode=concurrent", "").is(200, map[string]any{"items": ids(3)})
		s.post("/queue/q/acknowledge", body("lock_id", "unknown")).is(400, nil)
		s.post("/queue/q/acknowledge", body("lock_id", b)).is(200, nil)
		s.clock.move(10 * time.Second)
		s.lock("q", "mode=concurrent", 1) // the first lock has expired
		s.post("/queue/q/acknowledge", body("lock_id", a)).is(410, map[string]any{"error_code": "LOCK_EXPIRED"})
		s.post("/queue/q/acknowledge", body("lock_id", b)).is(400, nil)
	})
}

func TestModeOfAQueue(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.ask("PUT", "/queue/q", `{"mode": "concurrent", "ttl_seconds": 7, "priorities": 3}`).is(200,
			map[string]any{"success": true})
		s.push("q", 2, 1, 2)
		s.post("/queue/q/push", `{"item": 1, "priority": 3}`).is(400, nil)
		s.lock("q", "", 1)
		s.post("/queue/q/pop?require_ack=true", "").is(200, map[string]any{"lock_expires_at": start + 7})
		s.ask("PUT", "/queue/q", `{"priorities": 0, "mode": "both"}`).is(400, nil)
		s.ask("PUT", "/queue/q", `{"priority": 1}`).is(400, nil)
		s.ask("PUT", "/queue/q", `{"start": {"orchestration": "rondo.mine"}}`).is(400,
			map[string]any{"error_code": "INVALID_REQUEST"})
		s.ask("PUT", "/queue/q", `{"start": {}}`).is(400, nil)
	})
}

func TestExtendAndReturn(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.push("q", 0, 1, 2)
		id := s.lock("q", "ttl_seconds=10", 1)
		s.clock.move(9 * time.Second)
		s.post("/queue/q/extend", body("lock_id", id, "ttl_seconds", 60)).is(200,
			map[string]any{"lock_id": id, "lock_expires_at": start + 69})
		s.clock.move(59 * time.Second)
		s.post("/queue/q/nack", body("lock_id", id, "delay_seconds", 5)).is(200,
			map[string]any{"success": true, "items_returned": 1, "items_dead": 0})
		s.post("/queue/q/pop?count=2", "").is(200, map[string]any{"items": ids(2)})
		s.push("q", 0, 3)
		s.clock.move(5 * time.Second)
		s.post("/queue/q/pop?count=2", "").is(200, map[string]any{"items": ids(1, 3)}) // it comes back to the front
		for _, path := range []string{"extend", "nack"} {
			s.post("/queue/q/"+path, body("lock_id", id)).is(404, nil)
			s.post("/queue/q/"+path, "{}").is(400, map[string]any{"message": "lock_id is required"})
		}
	})
}

func TestDeadJobs(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.ask("PUT", "/queue/q", `{"max_attempts": 2}`).is(200, nil)
		s.push("q", 4, 1, 2)
		s.lock("q", "ttl_seconds=1", 1)
		s.clock.move(time.Second)
		s.post("/queue/q/nack", body("lock_id", s.lock("q", "", 1), "reason", "the printer burns")).is(200,
			map[string]any{"items_returned": 0, "items_dead": 1})
		r := s.ask("GET", "/queue/q/dead", "").is(200, map[string]any{"count": 1})
		dead := r.body["items"].([]any)[0].(map[string]any)
		if dead["reason"] != "the printer burns" || dead["attempts"] != 2.0 || dead["priority"] != 4.0 ||
			!equal(dead["item"], map[string]int{"id": 1}) {
			t.Errorf("%v", dead)
		}
		s.post("/queue/q/pop", "").is(200, map[string]any{"items": ids(2)})
		s.post("/queue/q/dead/requeue", body("dead_ids", []any{dead["dead_id"]})).is(200,
			map[string]any{"items_requeued": 1})
		s.post("/queue/q/dead/requeue", body("dead_ids", []any{dead["dead_id"]})).is(200,
			map[string]any{"items_requeued": 0})
		for range 2 {
			s.lock("q", "ttl_seconds=1", 1)
			s.clock.move(time.Second)
		}
		s.ask("GET", "/queue/q/depth", "").is(200, map[string]any{"depth": 0, "dead_items": 1})
		s.ask("DELETE", "/queue/q/dead", "").is(200, map[string]any{"items_removed": 1})
		s.ask("GET", "/queue/q/dead", "").is(200, map[string]any{"count": 0, "items": []any{}})
	})
}

func TestDelayedPush(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.post("/queue/q/push", `{"item": {"id": 1}, "delay_seconds": 2.5}`).is(200, nil)
		s.push("q", 0, 2)
		s.ask("GET", "/queue/q/depth", "").is(200, map[string]any{"depth": 1, "delayed_items": 1})
		s.clock.move(2 * time.Second)
		s.ask("GET", "/queue/q/oldest", "").is(200, map[string]any{"oldest_age_seconds": 2, "oldest_ready_at": start})
		s.clock.move(time.Second)
		s.ask("GET", "/queue/q/depth", "").is(200, map[string]any{"depth": 2, "delayed_items": 0})
		s.post("/queue/q/pop?count=2", "").is(200, map[string]any{"items": ids(2, 1)})
		for _, bad := range []string{"-1", "1e300", `"1"`} {
			s.post("/queue/q/push", `{"item": 1, "delay_seconds": `+bad+`}`).is(400, nil)
		}
	})
}

func TestPushes(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		for _, bad := range []string{"", "{", "[]", "1", `{"item": 1} 2`, `{}`, `{"items": []}`,
			`{"items": [{"item": 1}, {}]}`, `{"item": 1, "items": [{"item": 2}]}`, `{"item": 1, "priority": -1}`,
			`{"item": 1, "priority": 100}`, `{"item": 1, "priority": 1.5}`, `{"item": 1, "priority": "high"}`,
			`{"item": 1, "itme": 2}`, "{\"item\": \"\xff\"}"} {
			s.post("/queue/q/push", bad).is(400, map[string]any{"success": false, "error_code": "INVALID_REQUEST"})
		}
		s.ask("GET", "/queue/q", "").is(404, map[string]any{"error_code": "QUEUE_NOT_FOUND"})
		for _, good := range []string{`{"item": null}`, `{"item": "<a&b>"}`, `{"item": 12345678901234567890.123}`,
			`{"item": [ 1, {"b": 2, "a": 1} ], "priority": 99}`} {
			s.post("/queue/q/push", good).is(200, map[string]any{"items_pushed": 1})
		}
		r := s.post("/queue/q/pop?count=10", "").is(200, map[string]any{"count": 4})
		if want := `{"items":[null,"<a&b>",12345678901234567890.123,[1,{"b":2,"a":1}]],"count":4}` +
			"\n"; r.text != want {
			t.Errorf("%s, want %s", r.text, want)
		}
		for _, name := range []string{"a%2Fb", "a%20b", "%C3%A9", fmt.Sprintf("%0129d", 1)} {
			s.post("/queue/"+name+"/push", `{"item": 1}`).is(400, nil)
		}
	})
}

// The first request that names an expired lock gets 410, also after a push or a look of another
// client. After a pop there is no lock, as the document has it.
func TestExpiredUnnoticed(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		others := map[string]func(name string){
			"push": func(name string) { s.push(name, 0, 2) },
			"look": func(name string) {
				s.ask("GET", "/queue/"+name, "").is(200, map[string]any{"depth": 1, "locked_items": 0})
			},
			"both": func(name string) { s.push(name, 0, 2); s.ask("GET", "/queue/"+name+"/oldest", "").is(200, nil) },
		}
		for name, other := range others {
			for _, operation := range []string{"acknowledge", "extend", "nack"} {
				name := name + "." + operation
				s.push(name, 0, 1)
				lock := s.lock(name, "&ttl_seconds=5", 1)
				s.clock.move(6 * time.Second)
				other(name)
				s.post("/queue/"+name+"/"+operation, body("lock_id", lock)).is(410,
					map[string]any{"message": "Lock has expired", "error_code": "LOCK_EXPIRED"})
				s.post("/queue/"+name+"/"+operation, body("lock_id", lock)).is(404,
					map[string]any{"message": "No active lock found"})
			}
		}
		s.push("popped", 0, 1)
		lock := s.lock("popped", "&ttl_seconds=5", 1)
		s.clock.move(6 * time.Second)
		s.push("popped", 0, 2)
		s.post("/queue/popped/pop", "").is(200, map[string]any{"count": 1})
		s.post("/queue/popped/acknowledge", body("lock_id", lock)).is(404,
			map[string]any{"message": "No active lock found"})
	})
}
