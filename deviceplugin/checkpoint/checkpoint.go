// Package checkpoint encodes and decodes kubelet_internal_checkpoint, the kubelet's file of device
// assignments. It is imported when a node switches over, and exported so that it can switch back.
//
// The file is JSON with a checksum over Go's own rendering of the data: FNV-32a of the output of
// k8s.io/utils/dump.ForHash, which includes the names of the package and of the types. So the names
// checkpoint, checkpointData, PodDevicesEntry and DevicesPerNUMA, and the names, order and types of
// their fields, belong to the file format: renaming any of them makes every existing file look
// corrupt.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/internal/checksum"
)

// FileName is the name of the file in the device plugin directory.
const FileName = "kubelet_internal_checkpoint"

// ErrCorrupt says that the checksum does not match the data.
var ErrCorrupt = errors.New("checkpoint is corrupted")

// NoNode is the key in DevicesPerNUMA for devices without a NUMA node.
const NoNode int64 = -1

// DevicesPerNUMA maps NUMA node ids to device ids. A device with several nodes is listed under
// each.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry holds one container's devices of one resource.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	// AllocResp is the plugin's answer, a ContainerAllocateResponse as protobuf.
	AllocResp []byte
}

type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

type file struct {
	Data     checkpointData
	Checksum uint64
}

// Encode returns the file for the given assignments and the healthy devices of each registered
// resource.
func Encode(entries []PodDevicesEntry, registered map[string][]string) ([]byte, error) {
	f := file{Data: checkpointData{PodDeviceEntries: entries, RegisteredDevices: registered}}
	f.Checksum = checksum.Of(f.Data)
	data, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", FileName, err)
	}
	return data, nil
}

// Decode reads a file. The error is ErrCorrupt if the checksum is wrong.
func Decode(data []byte) ([]PodDevicesEntry, map[string][]string, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, nil, fmt.Errorf("decode %s: %w", FileName, err)
	}
	if sum := checksum.Of(f.Data); sum != f.Checksum {
		return nil, nil, fmt.Errorf("decode %s: %w: the data has checksum %d, the file says %d",
			FileName, ErrCorrupt, sum, f.Checksum)
	}
	return f.Data.PodDeviceEntries, f.Data.RegisteredDevices, nil
}

// IDs lists the devices of all nodes, sorted, each once.
func (e PodDevicesEntry) IDs() []string {
	var ids []string
	for _, onNode := range e.DeviceIDs {
		ids = append(ids, onNode...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Response decodes AllocResp.
func (e PodDevicesEntry) Response() (*v1beta1.ContainerAllocateResponse, error) {
	resp := &v1beta1.ContainerAllocateResponse{}
	if err := proto.Unmarshal(e.AllocResp, resp); err != nil {
		return nil, fmt.Errorf("decode allocate response of pod %s container %s resource %s: %w",
			e.PodUID, e.ContainerName, e.ResourceName, err)
	}
	return resp, nil
}

// EncodeResponse encodes AllocResp; equal answers give equal bytes.
func EncodeResponse(resp *v1beta1.ContainerAllocateResponse) ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(resp)
	if err != nil {
		return nil, fmt.Errorf("encode allocate response: %w", err)
	}
	return data, nil
}
