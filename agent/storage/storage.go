// Package storage has the volumes of the node's pods: their files, their mounts and disks, how they are, and
// what pods use of the node's disks.
package storage

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubemetrics "k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/agent/storage/localstorage/held"
	"github.com/numalet/numalet/agent/storage/localstorage/quota"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
)

// Config says what the node is, and who hears of volumes. All fields are required but MounterPath and
// Cluster.
type Config struct {
	// Root and LogsDir are the directories of the agent and of the pods' logs, Node the node's name.
	Root, LogsDir, Node        string
	ClusterDomain, MounterPath string
	// Enabled reports whether a feature gate is on.
	Enabled func(gate string) bool
	// StatsPeriod is volumeStatsAggPeriod, and SyncPeriod the time between two looks at volumes that may
	// have to grow.
	StatsPeriod, SyncPeriod time.Duration
	Registry                kubemetrics.KubeRegistry
	// Facts are the node's for files of pods.
	Facts func() cri.Facts
	// Object returns the node's object; nil: it is not known yet.
	Object  func() *v1.Node
	Cluster *Cluster // nil: the node is in no cluster
	Ends
}

// Ends hear what happens. None of them may block.
type Ends struct {
	volume.Ends
	OnNode   func(eventType, reason, message string) // records an event of the node
	Looked   func(by string, took time.Duration)     // how long measuring a volume took
	Measured func(volume.Measured)                   // all volumes were measured
}

// Cluster says what the API server says of volumes.
type Cluster struct {
	Objects Objects
	// Attached returns what the attacher of a driver says of a volume, as csi.MountsConfig has it.
	Attached func(ctx context.Context, of csi.Attachment) (map[string]string, bool, error)
	// DiskAttached reports whether a disk of iSCSI or Fibre Channel is attached to the node, as the
	// controller says; nil: no controller attaches them.
	DiskAttached func(name string) bool
	// Changed is published when the node's object is another.
	Changed mailbox.Source
}

// Objects reads the objects that volumes are made of.
type Objects interface {
	volume.Objects
	volume.PVCs
	csi.Objects
}

// Storage is the floor.
type Storage struct {
	Volumes *volume.Volumes
	Drivers Drivers // of CSI
	Mounts  *csi.Mounts
	// Used is published when other volumes are in use than before.
	Used *mailbox.Topic

	c      Config
	waking *mailbox.Box[types.UID]                        // pods that waited for a driver or an attachment
	rooms  atomic.Pointer[map[types.UID][]volume.PodRoom] // as measured last
	health atomic.Pointer[map[types.UID]volume.Health]    // as drivers said last
}

// Drivers are the node's drivers of CSI volumes.
type Drivers struct {
	*csi.Drivers
	Changed *mailbox.Topic // what they say of the node
}

// New makes the floor. It finds what is mounted: the node's status, which says which volumes are in use, is
// written later.
func New(ctx context.Context, c Config) (*Storage, error) {
	s := &Storage{c: c, Used: new(mailbox.Topic), waking: mailbox.New[types.UID]()}
	s.Drivers.Changed = new(mailbox.Topic)
	var err error
	s.Drivers.Drivers, err = csi.New(csi.Config{Changed: s.Drivers.Changed.Publish, Registry: c.Registry})
	if err != nil {
		return nil, err
	}
	if s.Mounts, err = s.mounts(ctx); err != nil {
		return nil, err
	}
	s.Volumes, err = s.volumes()
	return s, err
}

func (s *Storage) volumes() (*volume.Volumes, error) {
	cfg := volume.Config{
		Root: s.c.Root, ClusterDomain: s.c.ClusterDomain, Enabled: s.c.Enabled, Facts: s.c.Facts,
		Labels: func() map[string]string {
			if node := s.c.Object(); node != nil {
				return node.Labels
			}
			return nil
		},
		Ends: s.c.Ends.Ends,
	}
	cfg.MounterPath, cfg.CSI = s.c.MounterPath, s.Mounts
	cfg.Disks = volume.DisksConfig{Used: s.Used.Publish, Wake: s.waking.Put}
	if s.countsProjects() {
		cfg.Count = quota.New().Assign
	}
	if in := s.c.Cluster; in != nil {
		cfg.Objects, cfg.PVCs = in.Objects, in.Objects
		cfg.Disks.Secret, cfg.Disks.Attached = in.Objects.DriverSecret, in.DiskAttached
	}
	var err error
	if cfg.SELinux, err = selinux.New(selinux.ThisHost(), s.c.Enabled, s.c.Registry); err != nil {
		return nil, err
	}
	return volume.New(cfg)
}

// recordLost is the reason of events and problems of volumes that no record names.
const recordLost = "VolumeRecordLost"

func (s *Storage) mounts(ctx context.Context) (*csi.Mounts, error) {
	root, err := filepath.EvalSymlinks(s.c.Root)
	if err != nil {
		return nil, err
	}
	cfg := csi.MountsConfig{
		Drivers: s.Drivers.Drivers, Root: root, Node: s.c.Node, Used: s.Used.Publish, Wake: s.waking.Put,
		Done: s.c.Done, Recovery: csi.RecoveryConfig{Lost: func(message string) {
			s.c.OnNode(v1.EventTypeWarning, recordLost, message)
		}},
	}
	if in := s.c.Cluster; in != nil {
		cfg.Objects, cfg.Attached, cfg.Exhausted = in.Objects, in.Attached, s.Drivers.NodeInfo
	}
	return csi.NewMounts(ctx, cfg), nil
}

// countsProjects reports whether the kernel is to count what is in volumes.
func (s *Storage) countsProjects() bool {
	return s.c.Enabled("LocalStorageCapacityIsolationFSQuotaMonitoring")
}

// InUse lists the names of the volumes in use, as a node's status has them.
func (s *Storage) InUse() []string { return append(s.Mounts.InUse(), s.Volumes.Disks().InUse()...) }

// Problems lists the volumes whose records are lost, and those that cannot be unstaged.
func (s *Storage) Problems() (out []complaint.Problem) {
	for reason, messages := range map[string][]string{
		recordLost: s.Mounts.Amiss(""), volume.ReasonUnmount: s.Mounts.Stuck("")} {
		for _, message := range messages {
			out = append(out, complaint.Problem{Source: "csi", Name: "volume", Reason: reason, Message: message})
		}
	}
	slices.SortFunc(out, func(a, b complaint.Problem) int { return strings.Compare(a.Message, b.Message) })
	return out
}

// NewMeter makes what measures what pods, those that have not ended, use of the node's disks. processes
// finds files that these hold; nil: nothing does.
func (s *Storage) NewMeter(pods func() []*v1.Pod, processes *held.Pods) *localstorage.Meter {
	c := localstorage.Config{
		Root: s.c.Root, LogsDir: s.c.LogsDir, Period: s.c.StatsPeriod, Pods: pods, Processes: processes,
		Looked: s.c.Looked,
	}
	if s.countsProjects() {
		c.Quota = quota.Used
	}
	return localstorage.New(c)
}
