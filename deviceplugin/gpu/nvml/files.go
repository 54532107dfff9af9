//go:build cgo

package nvml

import (
	"cmp"
	"fmt"
	"io"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	transform "github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"github.com/sirupsen/logrus"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// driverFiles returns the driver's libraries, programs and sockets, and the hooks that make them
// usable in a container, with paths on the host and without device nodes. A session looks for them
// until they are found once.
func (s *session) driverFiles() (*specs.ContainerEdits, error) {
	if !s.Files.Wanted || s.files != nil {
		return s.files, nil
	}
	seen := cmp.Or(s.Files.SeenAt, s.Files.Root)
	quiet := logrus.New() // it logs the files of other distributions and drivers as missing
	quiet.SetOutput(io.Discard)
	library, err := nvcdi.New(nvcdi.WithNvmlLib(s.Library), nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithDriverRoot(seen), nvcdi.WithNVIDIACDIHookPath(s.Files.Hook),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils), nvcdi.WithLogger(quiet))
	if err != nil {
		return nil, s.without(err)
	}
	edits, err := library.GetCommonEdits()
	if err != nil {
		return nil, s.without(err)
	}
	spec := &specs.Spec{ContainerEdits: *edits.ContainerEdits}
	spec.ContainerEdits.DeviceNodes = nil
	toHost := transform.New(transform.WithRoot(seen), transform.WithTargetRoot(s.Files.Root),
		transform.WithRelativeTo("host"))
	if err := toHost.Transform(spec); err != nil {
		return nil, s.without(err)
	}
	s.files = &spec.ContainerEdits
	return s.files, nil
}

func (s *session) without(err error) error {
	return fmt.Errorf("the CDI spec lacks the driver's files, which should be in %s: %w; "+
		"set --nvidia-driver-root, and --container-driver-root if the plugin is in a container",
		cmp.Or(s.Files.SeenAt, s.Files.Root), err)
}
