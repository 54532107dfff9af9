package gpu

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func settings(t *testing.T, file string, env map[string]string, args ...string) (Settings, string,
	[]string, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := AddFlags(set, func(name string) string { return env[name] })
	if file != "" {
		name := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config-file", name)
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags.Settings()
}

// nvidias is a file as NVIDIA documents it.
const nvidias = `
version: v1
flags:
  migStrategy: mixed
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [envvar, cdi-cri]
    deviceIDStrategy: index
  gfd: {oneshot: false, sleepInterval: 60s}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 10}
    - {name: nvidia.com/mig-1g.10gb, rename: nvidia.com/small, devices: [0, "1:2"], replicas: 2}
`

func TestFileOfNVIDIA(t *testing.T) {
	got, dir, unused, err := settings(t, nvidias, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.MIG, want.FailOnInit, want.PassDeviceSpecs, want.ID = MIGMixed, true, true, ByIndex
	want.List, want.CDI.Files.Wanted = []ListStrategy{EnvVar, CDICRI}, true
	want.Shared = []Sharing{
		{Resource: "nvidia.com/gpu", As: "nvidia.com/gpu.shared", Replicas: 10, OnlyOne: true},
		{Resource: "nvidia.com/mig-1g.10gb", As: "nvidia.com/small", Replicas: 2, OnlyOne: true,
			Devices: []string{"0", "1:2"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	if dir != "/var/lib/kubelet/device-plugins" || !slices.Equal(unused, []string{"flags.gfd"}) {
		t.Errorf("in %s, without effect: %q", dir, unused)
	}
}

// As in NVIDIA's plugin, a resource without domain gets one, and one replica is no sharing.
func TestNamesWithoutDomain(t *testing.T) {
	got, _, _, err := settings(t, "version: v1\nsharing: {timeSlicing: {resources: [\n"+
		"{name: gpu, rename: slices, replicas: 2, devices: null},\n"+
		"{name: mig-1g.10gb, rename: example.com/small, replicas: 3},\n"+
		"{name: mig-2g.20gb, replicas: 1}]}}", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Sharing{
		{Resource: "nvidia.com/gpu", As: "nvidia.com/slices", Replicas: 2},
		{Resource: "nvidia.com/mig-1g.10gb", As: "example.com/small", Replicas: 3},
	}
	if !reflect.DeepEqual(got.Shared, want) {
		t.Errorf("%+v, want\n%+v", got.Shared, want)
	}
}

// A flag overrides its variable, which overrides the file.
func TestPrecedence(t *testing.T) {
	env := map[string]string{"MIG_STRATEGY": "single", "PASS_DEVICE_SPECS": "false",
		"KUBELET_SOCKET": "/k/kubelet.sock", "DP_DISABLE_HEALTHCHECKS": "119,120",
		"IMEX_CHANNEL_IDS": "0", "IMEX_REQUIRED": "true", "NVIDIA_DRIVER_ROOT": "/run/nvidia",
		"USE_NODE_FEATURE_API": "true"}
	got, dir, unused, err := settings(t, nvidias, env, "--mig-strategy=none", "--gds-enabled",
		"--health-recover-after=1h")
	if err != nil {
		t.Fatal(err)
	}
	if got.MIG != MIGNone || got.PassDeviceSpecs || got.ID != ByIndex || dir != "/k" ||
		!slices.Equal(got.Health.Ignored, []uint64{119, 120}) ||
		got.Health.RecoverAfter != time.Hour || !slices.Equal(got.Extras, []Extra{GDS, IMEX}) || !got.IMEXRequired ||
		got.CDI.Files.Root != "/run/nvidia" ||
		!slices.Contains(unused, "--use-node-feature-api") {
		t.Errorf("in %s %+v; unused %q", dir, got, unused)
	}
}

func TestWrongSettings(t *testing.T) {
	for _, c := range []struct{ file, arg, want string }{
		{"version: v2", "", `version is "v2"`},
		{"version: v1\nsharing: {timeSlicing: {resources: [{name: a, replicas: 0}]}}", "", "want 2 to"},
		{"version: v1\nsharing: {timeSlicing: {}, mps: {}}", "", "choose one"},
		{"version: v1\nsharing: {mps: {resources: [{name: a, replicas: 2, devices: few}]}}", "",
			"want all, a number"},
		{"version: v1\nsharing: {mps: {resources: [{name: a, replicas: 2, devices: 1}]}}", "",
			"rename these"},
		{"version: v1\nsharing: {mps: {resources: [{name: a, replicas: 2, devices: 0}]}}", "",
			"1 or more"},
		{"version: v1\nsharing: {mps: {resources: [{replicas: 2}]}}", "", `"" is no name`},
		{"version: v1\nsharing: {mps: {resources: [{name: a, rename: b_, replicas: 2}]}}", "",
			`"nvidia.com/b_" is no name`},
		{"", "--mig-strategy=both", "none or single or mixed"},
		{"", "--device-list-strategy=envvar,else", `"else"`},
		{"", "--pass-device-specs=perhaps", "want true or false"},
		{"", "--disable-healthchecks=some", "want XIDs"},
		{"", "--imex-channel-ids=1", "the only channel"},
		{"", "--config-file=/nonexistent", "/nonexistent"},
	} {
		var args []string
		if c.arg != "" {
			args = []string{c.arg}
		}
		if _, _, _, err := settings(t, c.file, nil, args...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.file, c.arg, err, c.want)
		}
	}
}

// Command lines and files that NVIDIA's plugin accepts.
func TestAsNVIDIAs(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
		env  map[string]string
		is   func(s Settings, unused []string) bool
	}{
		{"", []string{"--device-list-strategy=volume-mounts", "--device-list-strategy=envvar"}, nil,
			func(s Settings, _ []string) bool {
				return slices.Equal(s.List, []ListStrategy{EnvVar, VolumeMounts}) && !s.CDI.Files.Wanted
			}},
		{"", []string{"--mig-strategy=none", "--mig-strategy=mixed"}, nil,
			func(s Settings, _ []string) bool { return s.MIG == MIGMixed }},
		{"flags: {migStrategy: mixed}", nil, nil,
			func(s Settings, _ []string) bool { return s.MIG == MIGMixed }},
		{"version: v1\nflags: {newer: true, migStrategy: mixed}", nil, nil,
			func(s Settings, unused []string) bool {
				return s.MIG == MIGMixed && len(unused) == 1 && strings.Contains(unused[0], "newer")
			}},
		{"", []string{"--nvidia-ctk-path=/ctk"}, map[string]string{"DRIVER_ROOT_CTR_PATH": "/driver-root"},
			func(s Settings, unused []string) bool {
				return s.CDI.Files.Hook == "/ctk" && s.CDI.Files.SeenAt == "/driver-root" &&
					len(unused) == 0
			}},
		{"", []string{"--device-list-strategy=cdi-cri"}, nil,
			func(s Settings, _ []string) bool { return s.CDI.Files.Wanted }},
		{"", []string{"--device-list-strategy=cdi-cri", "--cdi-driver-files=false"}, nil,
			func(s Settings, _ []string) bool { return !s.CDI.Files.Wanted }},
	} {
		got, _, unused, err := settings(t, c.file, c.env, c.args...)
		if err != nil || !c.is(got, unused) {
			t.Errorf("%q %q %v: %+v, without effect %q: %v", c.file, c.args, c.env, got, unused, err)
		}
	}
}

func TestSharePlacement(t *testing.T) {
	for value, want := range map[string]bool{"": false, "spread": false, "packed": true} {
		got, _, _, err := settings(t, nvidias, map[string]string{"SHARE_PLACEMENT": value})
		if err != nil {
			t.Fatal(err)
		}
		for _, share := range got.Shared {
			if share.Packed != want {
				t.Errorf("%q: %+v", value, share)
			}
		}
	}
	if _, _, _, err := settings(t, nvidias, map[string]string{"SHARE_PLACEMENT": "x"}); err == nil ||
		!strings.Contains(err.Error(), "want spread or packed") {
		t.Errorf("x: %v", err)
	}
}
