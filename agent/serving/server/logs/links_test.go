package logs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLinksAreNotFollowed: whoever may write in the log directory, such as a log collector, cannot
// expose other files: not by a link in place of a log or of a directory in its path, not by a hard
// link, and not by a file that looks like a rotated log.
func TestLinksAreNotFollowed(t *testing.T) {
	const line = "2020-11-22T10:00:00.000000000Z stdout F secret\n"
	for name, plant := range map[string]func(secret, log string) error{
		"the log is a link": os.Symlink,
		"a hard link":       os.Link,
		"the container's directory is a link": func(secret, log string) error {
			return errors.Join(os.Remove(filepath.Dir(log)),
				os.Symlink(filepath.Dir(secret), filepath.Dir(log)))
		},
		"the pod's directory is a link": func(secret, log string) error {
			pod := filepath.Dir(filepath.Dir(log))
			return errors.Join(os.RemoveAll(pod), os.Symlink(filepath.Dir(filepath.Dir(secret)), pod))
		},
		"a hard link as a rotated log": func(secret, log string) error {
			return errors.Join(os.WriteFile(log, nil, 0o600), os.Link(secret, log+".20200101-000000"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			secret := filepath.Join(t.TempDir(), "pod", "c", "0.log")
			log := filepath.Join(t.TempDir(), "pod", "c", "0.log")
			for _, path := range []string{secret, log} {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(secret, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := plant(secret, log); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			ended := func() bool { return false }
			err := Log{Path: log, Running: ended}.Copy(t.Context(), &out, Options{})
			if err == nil || out.Len() > 0 {
				t.Errorf("shown is %q, %v", &out, err)
			}
		})
	}
}
