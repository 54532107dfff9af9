// Package hostinfo reads what the host's files say of it: the node's system information, swap,
// AppArmor. Whatever cannot be found is empty, as with the kubelet.
package hostinfo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/version"
	"github.com/numalet/numalet/topology"
)

// BootID distinguishes one boot of the kernel from another (proc_sys_kernel(5), random/boot_id).
func BootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// Read returns the node's system information without the runtime's version. The host's files are
// below root.
func Read(ctx context.Context, root, bootID string) v1.NodeSystemInfo {
	at := func(path string) string { return filepath.Join(root, path) }
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		klog.FromContext(ctx).Error(err, "The kernel does not say its version")
	}
	return v1.NodeSystemInfo{
		MachineID:              firstOf(at("etc/machine-id"), at("var/lib/dbus/machine-id")),
		SystemUUID:             systemUUID(at),
		BootID:                 bootID,
		KernelVersion:          unix.ByteSliceToString(name.Release[:]),
		OSImage:                osImage(at("etc/os-release"), at("usr/lib/os-release")),
		KubeletVersion:         version.Get().GitVersion,
		OperatingSystem:        "linux",
		Architecture:           goruntime.GOARCH,
		Swap:                   swap(at("proc/meminfo")),
		RunningInUserNamespace: new(userns.RunningInUserNS()),
	}
}

// maxHostFile is larger than any of these files.
const maxHostFile = 64 << 10

// firstOf returns the content of the first file that is not empty, without spaces around it.
func firstOf(paths ...string) string {
	for _, path := range paths {
		if text := strings.TrimSpace(readHost(path)); text != "" {
			return text
		}
	}
	return ""
}

// readHost follows links: /etc/os-release is one.
func readHost(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	raw, err := files.Read(target, maxHostFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		klog.Background().V(2).Info("A file of the host is not read", "path", path, "err", err)
	}
	return string(raw)
}

// systemUUID returns the firmware's name for the machine (sysfs-firmware-dmi, or the device tree),
// or else the machine's id: only root may read the former, and not every machine has it.
func systemUUID(at func(string) string) string {
	uuid := firstOf(at("sys/class/dmi/id/product_uuid"), at("proc/device-tree/system-id"),
		at("proc/device-tree/vm,uuid"), at("etc/machine-id"))
	return strings.TrimRight(uuid, "\x00")
}

// osImage returns PRETTY_NAME of os-release(5).
func osImage(paths ...string) string {
	for line := range strings.Lines(firstOf(paths...)) {
		value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "PRETTY_NAME=")
		if !ok {
			continue
		}
		if text, err := strconv.Unquote(value); err == nil {
			return text
		}
		return strings.Trim(value, `'"`)
	}
	return "Linux"
}

// EnforcesAppArmor reports whether the kernel enforces AppArmor profiles and can load them. The
// host's files are below root.
func EnforcesAppArmor(root string) bool {
	if _, err := os.Stat(filepath.Join(root, "sys/kernel/security/apparmor")); err != nil {
		return false
	}
	enabled := readHost(filepath.Join(root, "sys/module/apparmor/parameters/enabled"))
	return strings.HasPrefix(enabled, "Y")
}

// ThermalPaths lists where the CPUs count how often heat throttled them: a container that reads
// these counters learns what others compute. Virtual machines have none. The host's files are below
// root.
func ThermalPaths(root string) []string {
	const cpus = "/sys/devices/system/cpu"
	possible, err := topology.ParseCPUs(firstOf(filepath.Join(root, cpus, "possible")))
	if err != nil {
		return nil
	}
	var out []string
	for _, cpu := range possible.List() {
		path := fmt.Sprintf("%s/cpu%d/thermal_throttle", cpus, cpu)
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			out = append(out, path)
		}
	}
	return out
}
