package hostinfo

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/mount-utils"
)

// older is a kernel whose tmpfs does not know noswap.
type older struct{ *mount.FakeMounter }

func (o older) Mount(source, target, kind string, options []string) error {
	if slices.Contains(options, "noswap") {
		return errors.New("wrong fs type, bad option")
	}
	return o.FakeMounter.Mount(source, target, kind, options)
}

// A host that swaps, and cannot keep volumes in memory out of it, says so.
func TestVolumesThatAreSwapped(t *testing.T) {
	const header = "Filename\tType\tSize\tUsed\tPriority\n"
	newer := mount.NewFakeMounter(nil)
	for name, test := range map[string]struct {
		swaps  string
		kernel mount.Interface
		tells  bool
	}{
		"no swap":      {header, older{mount.NewFakeMounter(nil)}, false},
		"older kernel": {header + "/dev/sda2 partition 1 0 -2\n", older{mount.NewFakeMounter(nil)}, true},
		"newer kernel": {header + "/dev/sda2 partition 1 0 -2\n", newer, false},
	} {
		dir, reported := t.TempDir(), ""
		swaps := filepath.Join(t.TempDir(), "swaps")
		if err := os.WriteFile(swaps, []byte(test.swaps), 0o600); err != nil {
			t.Fatal(err)
		}
		err := WarnOfSwap(swaps, dir, test.kernel, func(eventType, reason, message string) {
			reported += eventType + " " + reason + ": " + message
		})
		const want = "Warning PossibleMemoryBackedVolumesOnDisk: The tmpfs noswap option is not " +
			"supported."
		if err != nil || strings.HasPrefix(reported, want) != test.tells || !test.tells && reported != "" {
			t.Errorf("%s: told %q, %v", name, reported, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
	if all, _ := newer.List(); len(all) > 0 {
		t.Errorf("%v is mounted still", all)
	}
}
