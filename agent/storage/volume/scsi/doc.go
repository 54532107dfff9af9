// Package scsi attaches disks of iSCSI targets and Fibre Channel fabrics to the node with the host's
// tools, and detaches them when no pod uses them. Nothing of it names a pod's directory: its caller
// gives a pod the disk.
//
//	iSCSI:          interface -> record of the target -> login -> scan -> device
//	Fibre Channel:                                       scan of all hosts -> device
//	both:           device -> multipath device, if there is one -> mounted once, for all pods
//
// Each disk has a directory below plugins/, which the kubelet has too: there its file system is
// mounted, or it has a file for each pod that has the disk as a device. The directory is made before
// anything else, so it is the record of what has to be undone, also after a kill or a reboot:
//
//	plugins/kubernetes.io/iscsi/iface-IFACE/PORTAL-IQN-lun-LUN       with iscsi.json, below the mount
//	plugins/kubernetes.io/iscsi/volumeDevices/iface-IFACE/...        as a device
//	plugins/kubernetes.io/fc/WWN-lun-LUN, plugins/kubernetes.io/fc/WWID
//	plugins/kubernetes.io/fc/volumeDevices/...                       as a device
//
// Sessions and devices of iSCSI are read from sysfs, which has them at once and by interface. The
// links of Fibre Channel disks are udev's, below /dev/disk.
package scsi
