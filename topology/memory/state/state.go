// Package state encodes and decodes memory_manager_state, the kubelet's file of its containers'
// memory. It is imported when a node switches over, and exported so that it can switch back.
//
// The file has two parts. "data" is a string of JSON with the checksum "dataChecksum"; kubelets
// since 1.37 read only this. The other fields, with "checksum", are for older kubelets. Both
// checksums are FNV-32a of the output of k8s.io/utils/dump.ForHash, which includes the names of the
// package and of the types. So the names state, MemoryManagerCheckpoint, NUMANodeMap,
// NUMANodeState, MemoryTable, ContainerMemoryAssignments, PodMemoryAssignments, PodEntry and Block,
// and the names, order and types of their fields, belong to the file format: renaming any of them
// makes every existing file look corrupt.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	"github.com/numalet/numalet/internal/checksum"
)

// FileName is the name of the file in the kubelet's root directory.
const FileName = "memory_manager_state"

// ErrCorrupt says that the checksum does not match the data.
var ErrCorrupt = errors.New("checkpoint is corrupted")

// MemoryTable describes one resource on one node, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"` // held by containers
	Free           uint64 `json:"free"`
}

// NUMANodeState describes one node.
type NUMANodeState struct {
	// NumberOfAssignments is the number of blocks that name the node.
	NumberOfAssignments int                              `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	// Cells are the nodes of the node's group, or the node alone.
	Cells []int `json:"cells"`
}

// NUMANodeMap holds the nodes by id.
type NUMANodeMap map[int]*NUMANodeState

// Block is a container's part of one resource.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// ContainerMemoryAssignments holds the blocks by pod UID and container name.
type ContainerMemoryAssignments map[string]map[string][]Block

// PodEntry holds the blocks of a pod as a whole.
type PodEntry struct {
	MemoryBlocks []Block `json:"memoryBlocks,omitempty"`
}

// PodMemoryAssignments holds pod entries by pod UID.
type PodMemoryAssignments map[string]PodEntry

// Contents is the content of the file.
type Contents struct {
	PolicyName   string                     `json:"policyName"` // "Static" or "None"
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	PodEntries   PodMemoryAssignments       `json:"podEntries,omitempty"`
}

// MemoryManagerCheckpoint is the part for older kubelets; its name is part of its checksum.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     uint64                     `json:"checksum"`
}

type file struct {
	MemoryManagerCheckpoint
	Data         string `json:"data"`
	DataChecksum uint64 `json:"dataChecksum"`
}

// Encode returns the file.
func Encode(c Contents) ([]byte, error) {
	c = c.withMaps()
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode data of %s: %w", FileName, err)
	}
	f := file{MemoryManagerCheckpoint: c.old(), Data: string(data)}
	f.Checksum = sumOld(&f.MemoryManagerCheckpoint)
	f.DataChecksum = checksum.Of(f.Data)
	out, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", FileName, err)
	}
	return out, nil
}

// Decode reads a file of any kubelet since 1.21. Like the kubelet, it uses the data if there is
// any, and accepts old files without a checksum. The error is ErrCorrupt if the checksum is wrong.
func Decode(data []byte) (Contents, error) {
	var f struct {
		Contents
		Checksum     uint64  `json:"checksum"`
		Data         *string `json:"data"`
		DataChecksum *uint64 `json:"dataChecksum"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return Contents{}, fmt.Errorf("decode %s: %w", FileName, err)
	}
	if f.Data == nil && f.DataChecksum == nil {
		c := f.withMaps()
		return c, c.verifyOld(f.Checksum)
	}
	if f.Data == nil || f.DataChecksum == nil {
		return Contents{}, fmt.Errorf("decode %s: %w: only one of data and dataChecksum is there",
			FileName, ErrCorrupt)
	}
	if got := checksum.Of(*f.Data); got != *f.DataChecksum {
		return Contents{}, corrupt(got, *f.DataChecksum)
	}
	var c Contents
	if err := json.Unmarshal([]byte(*f.Data), &c); err != nil {
		return Contents{}, fmt.Errorf("decode data of %s: %w", FileName, err)
	}
	return c.withMaps(), nil
}

// withMaps replaces nil maps by empty ones: the checksums differ.
func (c Contents) withMaps() Contents {
	if c.MachineState == nil {
		c.MachineState = NUMANodeMap{}
	}
	if c.Entries == nil {
		c.Entries = ContainerMemoryAssignments{}
	}
	if c.PodEntries == nil {
		c.PodEntries = PodMemoryAssignments{}
	}
	return c
}

func (c Contents) old() MemoryManagerCheckpoint {
	return MemoryManagerCheckpoint{
		PolicyName: c.PolicyName, MachineState: c.MachineState, Entries: c.Entries,
	}
}

// verifyOld verifies the checksum of a file without data, with or without pod entries.
func (c Contents) verifyOld(want uint64) error {
	old := c.old()
	without := sumOld(&old)
	with := sumOfPods(c)
	switch pods := len(c.PodEntries) > 0; {
	case want == with, !pods && (want == 0 || want == without):
		return nil
	case pods:
		return corrupt(with, want)
	}
	return corrupt(without, want)
}

func sumOld(c *MemoryManagerCheckpoint) uint64 {
	copied := *c
	copied.Checksum = 0
	return checksum.OfText(nameChecksum(dump.ForHash(&copied)))
}

// sumOfPods returns the checksum of kubelet 1.36's format, which was one type of the same name.
func sumOfPods(c Contents) uint64 {
	type MemoryManagerCheckpoint struct {
		PolicyName   string
		MachineState NUMANodeMap
		Entries      ContainerMemoryAssignments
		PodEntries   PodMemoryAssignments
		Checksum     uint64
	}
	return checksum.OfText(nameChecksum(dump.ForHash(&MemoryManagerCheckpoint{
		PolicyName: c.PolicyName, MachineState: c.MachineState, Entries: c.Entries,
		PodEntries: c.PodEntries,
	})))
}

// nameChecksum replaces the type of the last field by the kubelet's.
func nameChecksum(text string) string {
	return strings.TrimSuffix(text, "Checksum:(uint64)0}") + "Checksum:(checksum.Checksum)0}"
}

func corrupt(got, want uint64) error {
	return fmt.Errorf("decode %s: %w: the data has checksum %d, the file says %d",
		FileName, ErrCorrupt, got, want)
}
