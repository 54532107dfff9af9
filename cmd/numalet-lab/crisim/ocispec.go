package crisim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// checkSpec refuses what containerd refuses while it builds a container's OCI spec: unusable
// devices and mounts of the host, and CDI devices that no spec in the directories names. It accepts
// a mount of a missing path: containerd creates a directory there, this runtime does not.
func checkSpec(id string, cfg *runtimeapi.ContainerConfig, cdiDirs []string) error {
	for _, d := range cfg.GetDevices() {
		if err := checkDevice(d); err != nil {
			return specError(id, err)
		}
	}
	for _, m := range cfg.GetMounts() {
		if err := checkMount(m); err != nil {
			return specError(id, err)
		}
	}
	return checkCDI(cfg.GetCDIDevices(), cdiDirs)
}

func specError(id string, err error) error {
	return status.Errorf(codes.Unknown,
		"failed to generate container %q spec: failed to generate spec: %v", id, err)
}

// checkDevice requires a device node, or a directory whose device nodes the container gets.
func checkDevice(d *runtimeapi.Device) error {
	path, err := filepath.EvalSymlinks(d.GetHostPath())
	if d.GetHostPath() == "" {
		_, err = os.Lstat("")
	}
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() && info.Mode()&fs.ModeDevice == 0 {
		err = fmt.Errorf("get device path: %q containerPath: %q error: not a device node",
			d.GetHostPath(), d.GetContainerPath())
	}
	return err
}

func checkMount(m *runtimeapi.Mount) error {
	path := m.GetHostPath()
	if m.GetImage() != nil {
		return nil // images.checkMounts checks it
	}
	if err := checkRecursive(m); err != nil {
		return err
	}
	_, err := os.Stat(path)
	switch {
	case path == "":
		return fmt.Errorf("failed to mkdir %q: mkdir : no such file or directory", path)
	case err != nil && !os.IsNotExist(err):
		return fmt.Errorf("failed to stat %q: %w", path, err)
	}
	return nil
}

// checkMounts refuses the mounts of images that containerd refuses. Images have no content here, so
// every directory in them counts as present.
func (s *images) checkMounts(cfg *runtimeapi.ContainerConfig) error {
	for _, m := range cfg.GetMounts() {
		if m.GetImage() == nil {
			continue
		}
		if err := s.checkImageMount(m); err != nil {
			return status.Errorf(status.Code(err), "failed to mount image volume: %v: %s",
				crierrors.ErrImageVolumeMountFailed, status.Convert(err).Message())
		}
	}
	return nil
}

func (s *images) checkImageMount(m *runtimeapi.Mount) error {
	ref := m.GetImage().GetImage()
	switch _, has := s.find(ref); {
	case m.GetHostPath() != "":
		return fmt.Errorf("hostpath must be empty while mount image: %+v", m)
	case !m.GetReadonly():
		return fmt.Errorf("readonly must be true while mount image: %+v", m)
	case ref == "":
		return fmt.Errorf("image not specified in: %+v", m.GetImage())
	case !has:
		return status.Errorf(codes.NotFound, "failed to resolve image %q: not found", ref)
	case m.GetImageSubPath() != "" && !filepath.IsLocal(m.GetImageSubPath()):
		return fmt.Errorf("failed to ensure image subpath %q: path escapes from parent",
			m.GetImageSubPath())
	}
	return nil
}

// checkRecursive refuses a recursive read-only mount (KEP-3857) that is writable or propagates.
func checkRecursive(m *runtimeapi.Mount) error {
	switch {
	case !m.GetRecursiveReadOnly():
		return nil
	case !m.GetReadonly():
		return fmt.Errorf("recursive read-only mount conflicts with RW mount (hostPath=%q)",
			m.GetHostPath())
	case m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return fmt.Errorf("recursive read-only mount needs private propagation, got %q "+
			"(hostPath=%q)", m.GetPropagation(), m.GetHostPath())
	}
	return nil
}

// checkCDI looks the devices up in the specs that exist now.
func checkCDI(devices []*runtimeapi.CDIDevice, dirs []string) error {
	if len(devices) == 0 {
		return nil
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.GetName())
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err == nil {
		_, err = cache.InjectDevices(&oci.Spec{}, names...)
	}
	if err != nil {
		return status.Errorf(codes.Unknown,
			"failed to create containerd container: CDI device injection failed: %v", err)
	}
	return nil
}

// checkStart refuses what runc refuses in a spec that containerd has accepted.
func checkStart(cfg *runtimeapi.ContainerConfig) error {
	for i, d := range cfg.GetDevices() {
		if d.GetPermissions() == "" {
			return startError(fmt.Sprintf("device access at %d field cannot be empty", i+1))
		}
	}
	for _, m := range cfg.GetMounts() {
		if m.GetContainerPath() == "" || m.GetImage() == nil && !filepath.IsAbs(m.GetHostPath()) {
			return startError(fmt.Sprintf("unable to start container process: error during "+
				"container init: error mounting %q to rootfs at %q", m.GetHostPath(),
				m.GetContainerPath()))
		}
		if filepath.Clean(m.GetContainerPath()) == "/" {
			return startError("unable to start container process: error closing exec fds: open " +
				"/proc/self/fd: no such file or directory")
		}
	}
	for _, env := range cfg.GetEnvs() {
		if wrong := envError(env.GetKey(), string(env.GetValue())); wrong != "" {
			return startError("unable to start container process: error during container init: " +
				"environment variable " + wrong)
		}
	}
	return nil
}

// envError says in runc's words what is wrong with a variable; "": nothing. A name that has a "=" is
// only cut there.
func envError(name, value string) string {
	whole := name + "=" + value
	cut, rest, _ := strings.Cut(whole, "=")
	switch {
	case cut == "":
		return fmt.Sprintf("name can't be empty: %q", whole)
	case strings.ContainsRune(cut, 0):
		return fmt.Sprintf("name can't contain null(\\x00): %q", whole)
	case strings.ContainsRune(rest, 0):
		return fmt.Sprintf("value can't contain null(\\x00): %q", whole)
	}
	return ""
}

func startError(why string) error {
	return status.Errorf(codes.Unknown, "failed to create containerd task: failed to create shim "+
		"task: OCI runtime create failed: runc create failed: %s", why)
}
