package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/dradriver"
)

// hardware is the folder whose files are the devices. It implements dradriver.Devices.
type hardware struct{ folder string }

// look returns the devices that there are. Their names are made of what stays the same: after a restart
// pods have their devices by name.
func (h hardware) look() (out dradriver.List, err error) {
	out.At = time.Now()
	files, err := os.ReadDir(h.folder)
	for _, file := range files {
		text, err := os.ReadFile(h.path(file.Name()))
		if err != nil {
			continue // it has just gone
		}
		kind := "file"
		device := dradriver.Device{Device: resourcev1.Device{
			Name: file.Name(),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"kind": {StringValue: &kind},
			},
		}}
		if bytes.HasPrefix(text, []byte("broken")) {
			device.Trouble = "it says that it is broken"
		}
		out.Devices = append(out.Devices, device)
	}
	return out, err
}

func (h hardware) path(name string) string { return filepath.Join(h.folder, name) }

// Stands implements dradriver.Devices: the device of a claim is there as long as its file is.
func (h hardware) Stands(_ dradriver.Record, held dradriver.Held) bool {
	_, err := os.Stat(h.path(held.Device))
	return err == nil
}

// Obtain implements dradriver.Devices: a file needs no preparation.
func (h hardware) Obtain(_ dradriver.Records, _ dradriver.Record, held *dradriver.Held) error {
	held.ID = held.Device
	return nil
}

// Edits implements dradriver.Devices: each container of a claim gets its files.
func (h hardware) Edits(r dradriver.Record) (out []specs.ContainerEdits, err error) {
	for _, held := range r.Devices {
		out = append(out, specs.ContainerEdits{Mounts: []*specs.Mount{{
			HostPath: h.path(held.Device), ContainerPath: "/devices/" + held.Device,
			Options: []string{"ro", "bind"},
		}}})
	}
	return out, nil
}

// Drop implements dradriver.Devices: nothing was made that has to be taken back.
func (h hardware) Drop([]dradriver.Held) error { return nil }

// noParameters refuses parameters of claims: the driver has none.
func noParameters([]byte) error { return errors.New("the driver has no parameters") }
