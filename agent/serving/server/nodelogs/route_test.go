package nodelogs

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// aFolder makes a log directory with all kinds of obstacles.
func aFolder(t *testing.T) string {
	t.Helper()
	root, outside := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"syslog": "one\ntwo\n", "pods/a/0.log": "of a pod\n", "web.log": "web\n",
		"db/db.log": "db\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"link.log": filepath.Join(root, "pods/a/0.log"), "out": outside,
		"secret": filepath.Join(outside, "secret"), "up": "../../../../../../etc",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(outside, "secret"), filepath.Join(root, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// journal makes a program that prints its arguments, one on each line, for services that it knows.
func journal(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	script := "#!/bin/sh\ncase \"$*\" in\n*unit=known*) printf '%s\\n' \"$@\";;\n" +
		"*) echo '-- No entries --';;\nesac\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoute(t *testing.T) {
	c := Config{Root: aFolder(t), Query: true, Patience: time.Minute, Journal: journal(t)}
	off := c
	off.Query = false
	ask := func(c Config, path string) (int, string) {
		w := httptest.NewRecorder()
		Route(c).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	for _, tc := range []struct {
		path string
		code int
		body string // part of the answer
	}{
		{"/logs/", 200, `<a href="syslog">syslog</a>`},
		{"/logs/syslog", 200, "one\ntwo\n"},
		{"/logs/pods/a/0.log", 200, "of a pod\n"},
		{"/logs/link.log", 200, "of a pod\n"},
		{"/logs/none", 404, ""}, {"/logs/secret", 403, ""}, {"/logs/out/secret", 403, ""},
		{"/logs/up/passwd", 403, ""}, {"/logs/../../etc/passwd", 404, ""},
		{"/logs/hard", 403, ""}, {"/logs/?query=hard", 404, "no logs of hard"},
		{"/logs/pipe", 403, ""}, {"/logs/x%00", 404, ""},

		{"/logs/?query=known", 200, "--utc\n--no-pager\n--output=short-precise\n--unit=known\n"},
		{"/logs/?query=known&query=other&tailLines=5&pattern=a.*b&boot=-1&" +
			"sinceTime=2026-11-22T10:00:00Z&untilTime=2026-11-22T12:00:00%2B01:00", 200,
			"--since=2026-11-22 10:00:00.000\n--until=2026-11-22 11:00:00.000\n--lines=5\n" +
				"--grep=a.*b\n--boot=-1\n--unit=known\n--unit=other\n"},
		{"/logs/?query=web", 200, "web\n"}, {"/logs/?query=db", 200, "db\n"},
		{"/logs/?query=/syslog", 200, "one\ntwo\n"},
		{"/logs/?query=pods/a/0.log", 200, "of a pod\n"},
		{"/logs/?query=/secret", 404, "leads out"},
		{"/logs/?query=/../secret", 404, "invalid argument"},
		{"/logs/?query=none", 404, "no logs of none are in the journal"},
		{"/logs/?query=", 400, "name a service"},
		{"/logs/?query=--output=cat", 400, "is not the name of a service"},
		{"/logs/?query=a&query=b&query=c&query=d&query=e", 400, "at most 4"},
		{"/logs/?query=/a&query=b", 400, "a file is asked for alone"},
		{"/logs/?query=/syslog&tailLines=1", 400, "a file is shown as it is"},
		{"/logs/?query=a&boot=1", 400, "boot"}, {"/logs/?query=a&tailLines=-1", 400, "tailLines"},
		{"/logs/?query=a&sinceTime=noon", 400, "sinceTime"},
		{"/logs/?query=a&sinceTime=2026-11-22T10:00:00Z&untilTime=2026-11-22T09:00:00Z", 400,
			"untilTime is before sinceTime"},
		{"/logs/?query=a&pattern=(", 400, "pattern"},
		{"/logs/?query=a&pattern=" + strings.Repeat("a", 300), 400, "at most 256"},
		{"/logs/?query=a&colour=red", 400, "colour: unknown parameter"},
	} {
		code, body := ask(c, tc.path)
		if code != tc.code || !strings.Contains(body, tc.body) || strings.Contains(body, "secret\n") {
			t.Errorf("%s: %d %.300q, want %d with %q", tc.path, code, body, tc.code, tc.body)
		}
	}
	if code, body := ask(off, "/logs/?query=known"); code != 403 ||
		!strings.Contains(body, "enableSystemLogQuery") {
		t.Errorf("switched off: %d %q", code, body)
	}
	if code, _ := ask(off, "/logs/syslog"); code != 200 {
		t.Errorf("a file where queries are switched off: %d", code)
	}
}
