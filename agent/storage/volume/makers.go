package volume

import (
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
	"github.com/numalet/numalet/internal/keymutex"
)

// Makers make volumes of some types, or know more of them.
type Makers struct {
	// MounterPath is a program that mounts NFS volumes in place of mount, which is its first argument,
	// followed by mount's; "": mount itself. A Mounter does not use it.
	MounterPath string
	// CSI has volumes made by their drivers; nil: there are none.
	CSI *csi.Mounts
	// Disks says what disks of iSCSI and Fibre Channel need.
	Disks DisksConfig
	// SELinux says with which labels volumes are mounted; nil: with none.
	SELinux *selinux.Labels
}

// makers have what types of volumes make, share and take back volumes with. The table's verbs get it.
type makers struct {
	*node
	locks   keymutex.Mutex[place] // of volumes with a stage
	devices *onDevices
	mapped  mapped
	disks   hostDisks
	csi     csiDisks
	last    lastVersions // of the volumes that the agent writes
}

func newMakers(n *node, g *Grower) *makers {
	m := &makers{node: n, devices: newOnDevices(n.layout, n.filesystems),
		mapped: mapped{n, "/sys/block", "/dev"}}
	m.csi = csiDisks{n, m.mapped, g}
	m.disks = newHostDisks(n, m.devices, m.mapped)
	return m
}
