package agent

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
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/version"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
)

// systemInfo is what the node's status says of the host below root, "/" unless in a test. What
// cannot be found out is empty, as with the kubelet.
func systemInfo(ctx context.Context, root string, n node) v1.NodeSystemInfo {
	at := func(path string) string { return filepath.Join(root, path) }
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		klog.FromContext(ctx).Error(err, "The kernel does not say its version")
	}
	return v1.NodeSystemInfo{
		MachineID:               firstOf(at("etc/machine-id"), at("var/lib/dbus/machine-id")),
		SystemUUID:              systemUUID(at),
		BootID:                  n.host.bootID,
		KernelVersion:           unix.ByteSliceToString(name.Release[:]),
		OSImage:                 osImage(at("etc/os-release"), at("usr/lib/os-release")),
		ContainerRuntimeVersion: n.runtime.Name + "://" + plainVersion(n.runtime.Version),
		KubeletVersion:          version.Get().GitVersion,
		OperatingSystem:         "linux",
		Architecture:            goruntime.GOARCH,
		Swap:                    swap(at("proc/meminfo")),
		RunningInUserNamespace:  new(userns.RunningInUserNS()),
	}
}

// plainVersion is a version as the node's status has it: without the v that some begin with. What is
// none stays as it is.
func plainVersion(text string) string {
	plain := strings.TrimPrefix(text, "v")
	if _, err := utilversion.ParseGeneric(plain); err != nil {
		return text
	}
	return plain
}

// maxHostFile is more than any of the files has.
const maxHostFile = 64 << 10

// firstOf is the content of the first file that has any, in one line.
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

// systemUUID is the firmware's name for the machine (sysfs-firmware-dmi, or the device tree), or
// the machine's id where root alone may read it or there is none.
func systemUUID(at func(string) string) string {
	uuid := firstOf(at("sys/class/dmi/id/product_uuid"), at("proc/device-tree/system-id"),
		at("proc/device-tree/vm,uuid"), at("etc/machine-id"))
	return strings.TrimRight(uuid, "\x00")
}

// osImage is PRETTY_NAME of os-release(5).
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

// swap is SwapTotal of proc_meminfo(5); nil: there is none.
func swap(path string) *v1.NodeSwapStatus {
	for line := range strings.Lines(readHost(path)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "SwapTotal:" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || kib == 0 {
			return nil
		}
		return &v1.NodeSwapStatus{Capacity: new(kib << 10)}
	}
	return nil
}

// enforcesAppArmor reports whether the kernel of the host whose files are below root enforces
// AppArmor profiles, and they can be loaded.
func enforcesAppArmor(root string) bool {
	if _, err := os.Stat(filepath.Join(root, "sys/kernel/security/apparmor")); err != nil {
		return false
	}
	enabled := readHost(filepath.Join(root, "sys/module/apparmor/parameters/enabled"))
	return strings.HasPrefix(enabled, "Y")
}

// thermalPaths are where the CPUs of the host below root count how often they were throttled for their
// heat. Virtual machines have none. A container that reads them learns what others compute.
func thermalPaths(root string) []string {
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
