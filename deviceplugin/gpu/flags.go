package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/ptr"
)

// Flags is the plugin's command line. Each flag of NVIDIA's plugin has the same name and
// environment variable here. A flag overrides its variable, which overrides the file.
type Flags struct {
	set *pflag.FlagSet
	env func(string) string
}

// option is a flag with its variable and its value in the file, "" if the file has none.
type option struct {
	flag, env string
	file      func(f file) string
	apply     func(s *Settings, value string) error
	usage     string
}

func truth(p *bool) string {
	if p == nil {
		return ""
	}
	return strconv.FormatBool(*p)
}

func nothing(file) string { return "" }

// optionTable returns all options except those that locate the file and the kubelet.
func optionTable() []option {
	return slices.Concat(deviceOptions(), cdiOptions(), extraOptions(), healthOptions())
}

// deviceOptions choose the devices and how containers get them.
func deviceOptions() []option {
	return []option{
		{"mig-strategy", "MIG_STRATEGY",
			func(f file) string { return ptr.Deref(f.Flags.MIGStrategy, "") },
			func(s *Settings, v string) error { s.MIG = MIGStrategy(v); return nil },
			"how MIG devices are offered: none, single or mixed (none)"},
		{"fail-on-init-error", "FAIL_ON_INIT_ERROR",
			func(f file) string { return truth(f.Flags.FailOnInitError) },
			func(s *Settings, v string) error { return parse(&s.FailOnInit, v) },
			"end where there is no driver at the start, instead of waiting for it (false)"},
		{"nvidia-dev-root", "NVIDIA_DEV_ROOT",
			func(f file) string { return ptr.Deref(f.Flags.NvidiaDevRoot, "") },
			func(s *Settings, v string) error { s.DevRoot = v; return nil },
			"where /dev with the GPUs' device nodes is on the host (/)"},
		{"pass-device-specs", "PASS_DEVICE_SPECS",
			func(f file) string { return truth(f.Flags.Plugin.PassDeviceSpecs) },
			func(s *Settings, v string) error { return parse(&s.PassDeviceSpecs, v) },
			"name the device nodes in answers, as the CPU manager's nodes want (false)"},
		{"device-list-strategy", "DEVICE_LIST_STRATEGY",
			func(f file) string { return strings.Join(f.Flags.Plugin.DeviceListStrategy, ",") },
			func(s *Settings, v string) error {
				s.List = nil
				for _, one := range strings.Split(v, ",") {
					s.List = append(s.List, ListStrategy(strings.TrimSpace(one)))
				}
				slices.SortStableFunc(s.List, func(a, b ListStrategy) int { // whatever their order
					return cmp.Compare(slices.Index(listOrder(), a), slices.Index(listOrder(), b))
				})
				return nil
			},
			"how containers get devices: envvar, volume-mounts, cdi-annotations, cdi-cri, or " +
				"several of them (envvar)"},
		{"device-id-strategy", "DEVICE_ID_STRATEGY",
			func(f file) string { return ptr.Deref(f.Flags.Plugin.DeviceIDStrategy, "") },
			func(s *Settings, v string) error { s.ID = IDStrategy(v); return nil },
			"what names devices there: uuid or index (uuid)"},
	}
}

// cdiOptions configure CDI specs.
func cdiOptions() []option {
	return []option{
		{"cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX",
			func(f file) string { return ptr.Deref(f.Flags.Plugin.CDIAnnotationPrefix, "") },
			func(s *Settings, v string) error { s.CDI.AnnotationPrefix = v; return nil },
			"prefix of CDI's annotations (cdi.k8s.io/)"},
		{"cdi-dir", "CDI_DIR", nothing,
			func(s *Settings, v string) error { s.CDI.Dir = v; return nil },
			"where the CDI specs are written (/var/run/cdi)"},
		{"cdi-driver-files", "CDI_DRIVER_FILES", nothing,
			func(s *Settings, v string) error { return parse(&s.CDI.Files.Wanted, v) },
			"have the CDI spec name the driver's libraries and programs too; without them NVIDIA's " +
				"container runtime has to add them (true with a CDI strategy)"},
		{"nvidia-driver-root", "NVIDIA_DRIVER_ROOT",
			func(f file) string { return ptr.Deref(f.Flags.NvidiaDriverRoot, "") },
			func(s *Settings, v string) error { s.CDI.Files.Root = v; return nil },
			"with --cdi-driver-files: the driver's root on the host (/)"},
		{"container-driver-root", "CONTAINER_DRIVER_ROOT",
			func(f file) string { return ptr.Deref(f.Flags.Plugin.ContainerDriverRoot, "") },
			func(s *Settings, v string) error { s.CDI.Files.SeenAt = v; return nil },
			"with --cdi-driver-files: where the plugin sees that root (the same)"},
		{"nvidia-cdi-hook-path", "NVIDIA_CDI_HOOK_PATH",
			func(f file) string { return ptr.Deref(f.Flags.Plugin.NvidiaCTKPath, "") },
			func(s *Settings, v string) error { s.CDI.Files.Hook = v; return nil },
			"with --cdi-driver-files: nvidia-cdi-hook, or nvidia-ctk, on the host " +
				"(/usr/bin/nvidia-cdi-hook)"},
	}
}

// extraOptions configure what containers get besides GPUs.
func extraOptions() []option {
	return []option{
		{"mps-root", "MPS_ROOT", func(f file) string { return ptr.Deref(f.Flags.MPSRoot, "") },
			func(s *Settings, v string) error { s.MPSRoot = v; return nil },
			"where the MPS control daemons have their pipes on the host (/run/nvidia/mps)"},
		{"share-placement", "SHARE_PLACEMENT", nothing, placeShares,
			"which shares a container gets that asks for several: spread, of several GPUs where it " +
				"can, or packed, of as few as can be (spread)"},
		{"gdrcopy-enabled", "GDRCOPY_ENABLED",
			func(f file) string { return truth(f.Flags.GDRCopyEnabled) },
			switchOn(GDRCopy),
			"give containers GDRCopy (false)"},
		{"gds-enabled", "GDS_ENABLED",
			func(f file) string { return truth(f.Flags.GDSEnabled) }, switchOn(GDS),
			"give containers GPUDirect Storage (false)"},
		{"mofed-enabled", "MOFED_ENABLED",
			func(f file) string { return truth(f.Flags.MOFEDEnabled) }, switchOn(MOFED),
			"give containers MOFED's devices (false)"},
		{"imex-channel-ids", "IMEX_CHANNEL_IDS", imexOf, imex,
			"IMEX channels of containers; there is 0 (none)"},
		{"imex-required", "IMEX_REQUIRED",
			func(f file) string { return truth(&f.IMEX.Required) },
			func(s *Settings, v string) error { return parse(&s.IMEXRequired, v) },
			"give nobody a GPU where the host has not the IMEX channels (false)"},
	}
}

// placeShares sets how several shares are chosen, for every shared resource.
func placeShares(s *Settings, v string) error {
	if v != "spread" && v != "packed" {
		return errors.New("want spread or packed")
	}
	for i := range s.Shared {
		s.Shared[i].Packed = v == "packed"
	}
	return nil
}

// healthOptions choose what makes a GPU unhealthy.
func healthOptions() []option {
	return []option{
		{"health-recover-after", "HEALTH_RECOVER_AFTER", nothing,
			func(s *Settings, v string) (err error) {
				s.Health.RecoverAfter, err = time.ParseDuration(v)
				return err
			},
			"how long an XID counts with drivers that do not say what they want done; 0 is until " +
				"the GPU was reset (10m)"},
		{"disable-healthchecks", "DP_DISABLE_HEALTHCHECKS", nothing, disabled,
			"what does not count against a GPU: all, xids, or XIDs separated by commas (none)"},
		{"enable-healthchecks", "DP_ENABLE_HEALTHCHECKS", nothing, enabled,
			"XIDs that count though they are those of applications (none)"},
	}
}

// AddFlags adds the plugin's flags.
func AddFlags(set *pflag.FlagSet, env func(string) string) *Flags {
	for _, o := range optionTable() {
		usage := o.usage + " [" + o.env + "]"
		if o.flag == "device-list-strategy" {
			set.Var(&repeated{}, o.flag, usage)
		} else {
			set.String(o.flag, "", usage)
		}
		if strings.HasSuffix(o.usage, "(false)") || strings.Contains(o.usage, "(true with") {
			set.Lookup(o.flag).NoOptDefVal = "true"
		}
	}
	set.String("config-file", "", "configuration file, as that of NVIDIA's plugin [CONFIG_FILE]")
	set.String("kubelet-socket", "/var/lib/kubelet/device-plugins/kubelet.sock",
		"the kubelet's socket for device plugins [KUBELET_SOCKET]")
	for flag := range withoutEffect() {
		set.String(flag, "", "as NVIDIA's plugin has it; has no effect here")
		_ = set.MarkHidden(flag) // the flag exists
	}
	for alias, as := range aliases() {
		set.String(alias, "", "as --"+as.flag)
		_ = set.MarkHidden(alias) // the flag exists
	}
	return &Flags{set: set, env: env}
}

// repeated is the value of a flag that may be given several times, which means the same as commas.
type repeated struct{ text string }

// String implements pflag.Value.
func (r *repeated) String() string { return r.text }

// Type implements pflag.Value.
func (r *repeated) Type() string { return "string" }

// Set implements pflag.Value.
func (r *repeated) Set(text string) error {
	if r.text != "" {
		text = r.text + "," + text
	}
	r.text = text
	return nil
}

// alias names the flag and the variable behind another name.
type alias struct{ env, flag string }

// aliases returns further names that NVIDIA's plugin has for options.
func aliases() map[string]alias {
	return map[string]alias{
		"driver-root-ctr-path": {"DRIVER_ROOT_CTR_PATH", "container-driver-root"},
		"nvidia-ctk-path":      {"NVIDIA_CTK_PATH", "nvidia-cdi-hook-path"},
	}
}

// withoutEffect returns accepted flags of NVIDIA's plugin that have no effect here, with their
// variables.
func withoutEffect() map[string]string {
	return map[string]string{
		"device-discovery-strategy": "DEVICE_DISCOVERY_STRATEGY",
		"use-node-feature-api":      "USE_NODE_FEATURE_API",
		"cdi-feature-flags":         "CDI_FEATURE_FLAGS",
	}
}

// value returns what the flag or else its variable says; "": nothing.
func (f *Flags) value(flag, env string) string {
	if one := f.set.Lookup(flag); one.Changed || f.env(env) == "" {
		return one.Value.String()
	}
	return f.env(env)
}

// ofAlias returns what another name of the flag says; "": nothing.
func (f *Flags) ofAlias(flag string) string {
	for name, as := range aliases() {
		if as.flag == flag {
			return f.value(name, as.env)
		}
	}
	return ""
}

// Settings merges flags, environment and file. It also returns the kubelet's device plugin
// directory and the names of settings that have no effect.
func (f *Flags) Settings() (s Settings, dir string, unused []string, err error) {
	s = Defaults()
	dir = filepath.Dir(f.value("kubelet-socket", "KUBELET_SOCKET"))
	var from file
	if name := f.value("config-file", "CONFIG_FILE"); name != "" {
		if from, unused, err = readFile(name); err != nil {
			return s, dir, nil, err
		}
		if s.Shared, err = from.sharing(); err != nil {
			return s, dir, nil, fmt.Errorf("configuration %s: %w", name, err)
		}
	}
	for flag, variable := range withoutEffect() {
		if f.value(flag, variable) != "" {
			unused = append(unused, "--"+flag)
		}
	}
	slices.Sort(unused)
	for _, o := range optionTable() {
		value := cmp.Or(f.value(o.flag, o.env), f.ofAlias(o.flag), o.file(from))
		if value == "" {
			continue
		}
		if err := o.apply(&s, value); err != nil {
			return s, dir, nil, fmt.Errorf("--%s (%s) %q: %w", o.flag, o.env, value, err)
		}
	}
	if f.value("cdi-driver-files", "CDI_DRIVER_FILES") == "" {
		s.CDI.Files.Wanted = s.usesCDI()
	}
	return s, dir, unused, s.validate()
}

func parse(into *bool, value string) (err error) {
	*into, err = strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("want true or false")
	}
	return nil
}

// switchOn returns an apply function that adds an extra.
func switchOn(e Extra) func(*Settings, string) error {
	return func(s *Settings, value string) error {
		var on bool
		if err := parse(&on, value); err != nil || !on {
			return err
		}
		s.Extras = append(s.Extras, e)
		return nil
	}
}

func imexOf(f file) string {
	if len(f.IMEX.ChannelIDs) == 0 {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(f.IMEX.ChannelIDs), " ", ","), "[]")
}

func imex(s *Settings, value string) error {
	if value != "0" {
		return fmt.Errorf("want 0, the only channel")
	}
	s.Extras = append(s.Extras, IMEX)
	return nil
}

func disabled(s *Settings, value string) (err error) {
	switch strings.ToLower(value) {
	case "all":
		s.Health.Off = true
	case "xids":
		s.Health.NoXIDs = true
	default:
		s.Health.Ignored, err = numbers(value)
	}
	return err
}

func enabled(s *Settings, value string) (err error) {
	s.Health.Counted, err = numbers(value)
	return err
}

func numbers(value string) (out []uint64, err error) {
	for _, one := range strings.Split(value, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(one), 10, 16)
		if err != nil {
			return nil, fmt.Errorf("want XIDs, numbers separated by commas")
		}
		out = append(out, n)
	}
	return out, nil
}
