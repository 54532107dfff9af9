package eni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/internal/files"
)

// outside writes what others read about the interfaces: CDI specs for the container runtime, and
// device-info files of the Network Plumbing Working Group for network plugins.
type outside struct {
	cdi, info string // folders
	move      Move
	written   map[string]string // by path
}

// write updates the files of a resource.
func (o *outside) write(resource string, interfaces []Interface) error {
	return errors.Join(o.writeSpec(resource, interfaces), o.writeInfos(resource, interfaces))
}

// writeSpec writes the CDI spec of a resource, or removes it if the runtime moves nothing.
func (o *outside) writeSpec(resource string, interfaces []Interface) error {
	name := "numalet-eni-" + strings.ReplaceAll(resource, "/", "-") + ".json"
	path := filepath.Join(o.cdi, name)
	if o.move != ByRuntime || len(interfaces) == 0 {
		delete(o.written, path)
		return files.Remove(path)
	}
	spec := &specs.Spec{Kind: resource}
	for _, i := range interfaces {
		spec.Devices = append(spec.Devices,
			specs.Device{Name: cdiName(i.ID), ContainerEdits: moved(i)})
	}
	text, err := json.Marshal(spec)
	if err != nil || o.written[path] == string(text) {
		return err
	}
	if err := serve.WriteSpec(o.cdi, name, spec); err != nil {
		return fmt.Errorf("describe %s for the container runtime: %w", resource, err)
	}
	o.written[path] = string(text)
	return nil
}

// moved has the container runtime move an interface into a container, where it keeps its name.
func moved(i Interface) specs.ContainerEdits {
	name := i.Link.State.Name
	return specs.ContainerEdits{NetDevices: []*specs.LinuxNetDevice{
		{HostInterfaceName: name, Name: name}}}
}

// deviceInfo is the content of a device-info file (DeviceInfo 1.1.0 of the Network Plumbing Working
// Group).
type deviceInfo struct {
	Type    string    `json:"type"`
	Version string    `json:"version"`
	PCI     pciDevice `json:"pci"`
}

type pciDevice struct {
	Address  string `json:"pci-address"`
	RDMA     string `json:"rdma-device,omitempty"`
	Physical string `json:"pf-pci-address,omitempty"`
}

// writeInfos writes a device-info file for each PCI function, and removes those of other functions.
func (o *outside) writeInfos(resource string, interfaces []Interface) error {
	prefix := strings.ReplaceAll(resource, "/", "-") + "-"
	const suffix = "-device.json"
	wanted := map[string]bool{}
	var err error
	for _, i := range interfaces {
		if i.Hardware.PCI == "" {
			continue
		}
		path := filepath.Join(o.info, prefix+strings.ReplaceAll(i.ID, "/", "-")+suffix)
		wanted[filepath.Base(path)] = true
		err = errors.Join(err, o.writeInfo(path, i.Hardware))
	}
	entries, readErr := os.ReadDir(o.info)
	if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		return errors.Join(err, readErr)
	}
	for _, e := range entries {
		id, found := strings.CutPrefix(strings.TrimSuffix(e.Name(), suffix), prefix)
		if found && pciID.MatchString(id) && !wanted[e.Name()] {
			path := filepath.Join(o.info, e.Name())
			delete(o.written, path)
			err = errors.Join(err, files.Remove(path))
		}
	}
	return err
}

func (o *outside) writeInfo(path string, h Hardware) error {
	text, err := json.Marshal(deviceInfo{"pci", "1.1.0",
		pciDevice{h.PCI, strings.Join(h.RDMA, ","), h.Physical}})
	if err != nil || o.written[path] == string(text) {
		return err
	}
	if err := os.MkdirAll(o.info, 0o755); err != nil {
		return err
	}
	if err := files.Replace(path, text); err != nil {
		return fmt.Errorf("write device-info file: %w", err)
	}
	o.written[path] = string(text)
	return nil
}
