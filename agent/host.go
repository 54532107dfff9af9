package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/tunables"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// bootID tells one boot of the kernel from another (proc_sys_kernel(5), random/boot_id).
func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// makeDirs makes the agent's directories with the kubelet's modes.
func makeDirs(cfg *config.Config) error {
	root := cfg.RootDir
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{
		{root, 0o750},
		{filepath.Join(root, "pods"), 0o750},
		{filepath.Join(root, "plugins"), 0o750},
		{filepath.Join(root, "plugins_registry"), 0o750},
		{filepath.Join(root, "pod-resources"), 0o750},
		{filepath.Join(root, "checkpoints"), 0o700},
		{cfg.Kubelet.PodLogsDir, 0o750},
		{logLinks(cfg.Kubelet.PodLogsDir), 0o755},
	} {
		if d.path == "" {
			continue
		}
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("make directory: %w; give a writable one with --root-dir or "+
				"podLogsDir", err)
		}
	}
	return nil
}

// checkHost refuses hosts that the configuration says to refuse.
func checkHost(ctx context.Context, cfg *config.Config) error {
	if *cfg.Kubelet.FailSwapOn {
		on, err := swapOn(procSwaps)
		if err != nil {
			return err
		}
		if on {
			return errors.New("running with swap on is not supported, please disable swap or " +
				"set --fail-swap-on flag to false")
		}
	}
	if !*cfg.Kubelet.CgroupsPerQOS {
		return nil
	}
	if unified() {
		return nil
	}
	if *cfg.Kubelet.FailCgroupV1 {
		return errors.New("this host has cgroup v1 and failCgroupV1 is true; boot it with cgroup " +
			"v2 (systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false " +
			"(--fail-cgroupv1=false)")
	}
	klog.FromContext(ctx).Info("The host has cgroup v1, which the kubelet no longer supports by " +
		"default")
	return nil
}

// procSwaps has a line for each swap space, and one before them (proc(5)).
const procSwaps = "/proc/swaps"

func swapOn(swaps string) (bool, error) {
	raw, err := os.ReadFile(swaps)
	if err != nil {
		return false, fmt.Errorf("look for swap: %w", err)
	}
	return strings.Count(strings.TrimSpace(string(raw)), "\n") > 0, nil
}

// warnOfSwap tells of a host that swaps what volumes keep in memory, secrets among it.
func warnOfSwap(swaps, dir string, m mount.Interface, tell func(eventType, reason, message string),
) error {
	on, err := swapOn(swaps)
	if err != nil || !on {
		return err
	}
	stays, err := volume.StaysInMemory(m, dir)
	if err == nil && !stays {
		tell(v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk", "The tmpfs noswap option is not "+
			"supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk "+
			"and should no longer be considered secure.")
	}
	return err
}

// unified reports whether the host has cgroup v2.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// hostSwap is what containers may use of the swap space of the host whose files are below root.
func hostSwap(root string, k *kubeletconfig.KubeletConfiguration) cri.Swap {
	out := cri.Swap{Limited: k.MemorySwap.SwapBehavior == "LimitedSwap"}
	cgroups := filepath.Join(root, "sys/fs/cgroup")
	_, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	out.Unified = err == nil
	limits := []string{filepath.Join(cgroups, "memory/memory.memsw.limit_in_bytes")}
	if out.Unified { // the machine's root has none; one that a container sees has
		limits = []string{filepath.Join(cgroups, "memory.swap.max"),
			filepath.Join(cgroups, "*", "memory.swap.max")}
	}
	for _, pattern := range limits {
		found, _ := filepath.Glob(pattern) // it is well formed
		out.Controlled = out.Controlled || len(found) > 0
	}
	if s := swap(filepath.Join(root, "proc/meminfo")); s != nil {
		out.Bytes = *s.Capacity
	}
	return out
}

// connect reaches the container runtime.
func connect(ctx context.Context, n node) (*cri.Client, error) {
	k := &n.cfg.Kubelet
	return cri.Connect(ctx, cri.Config{
		RuntimeEndpoint: k.ContainerRuntimeEndpoint,
		ImageEndpoint:   k.ImageServiceEndpoint,
		Timeout:         k.RuntimeRequestTimeout.Duration,
		Registry:        n.registry,
		Foreign: func(annotations map[string]string) bool {
			return n.runtime.others.Has(annotations[cri.AnnotationRoot])
		},
	})
}

// cgroupTree opens the cgroups with the driver that the runtime uses; nil where cgroupsPerQOS
// is off.
func cgroupTree(ctx context.Context, n *node) (*cgroups.Tree, error) {
	cfg := n.cfg
	if !*cfg.Kubelet.CgroupsPerQOS {
		return nil, nil
	}
	driver := cfg.Kubelet.CgroupDriver
	asked, err := askDriver(ctx, n.client)
	switch {
	case err == nil:
		driver = asked
	case errors.Is(err, cri.ErrNoRuntimeConfig):
		klog.FromContext(ctx).Info("The runtime does not tell its cgroup driver",
			"using", driver, "from", "cgroupDriver")
	default:
		return nil, err
	}
	return cgroups.New(cgroups.Config{
		Root: cfg.Kubelet.CgroupRoot, Driver: cgroups.Driver(driver), Registry: n.registry,
		MemoryQoS: memoryQoS(cfg),
	})
}

func memoryQoS(cfg *config.Config) cgroups.MemoryQoS {
	k := &cfg.Kubelet
	return cgroups.MemoryQoS{
		On: cfg.Gates.Enabled("MemoryQoS"),
		Reserve: k.MemoryReservationPolicy ==
			kubeletconfig.TieredReservationMemoryReservationPolicy,
		Throttle: ptr.Deref(k.MemoryThrottlingFactor, 0),
	}
}

// tuneKernel sees to the kernel's settings. An agent whose pods have a cgroup below another one is a
// guest on the machine: it changes nothing there.
func tuneKernel(ctx context.Context, k *kubeletconfig.KubeletConfiguration) error {
	switch {
	case !*k.CgroupsPerQOS: // containers are not the machine's
	case k.ProtectKernelDefaults:
		return tunables.Check(sysctl.New())
	case path.Clean("/"+k.CgroupRoot) == "/":
		if err := tunables.Set(sysctl.New()); err != nil {
			klog.FromContext(ctx).Error(err, "Pods may find another kernel than elsewhere")
		}
	}
	return nil
}

// askDriver asks three times, two seconds apart: a runtime that has just started may need them.
func askDriver(ctx context.Context, client *cri.Client) (driver string, err error) {
	for try := range 3 {
		if try > 0 && !await.For(ctx, 2*time.Second) {
			return "", ctx.Err()
		}
		driver, err = client.CgroupDriver(ctx)
		if err == nil || errors.Is(err, cri.ErrNoRuntimeConfig) {
			return driver, err
		}
	}
	return "", err
}
