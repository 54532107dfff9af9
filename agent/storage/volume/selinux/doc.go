// Package selinux decides with which SELinux context volumes are mounted (KEP-1710).
//
// The kernel gives all files of a mount one label if it is mounted with the option context=LABEL. Else
// the runtime labels each file of a volume anew for each container, which takes long.
//
//	containers' seLinuxOptions ---.
//	the pod's seLinuxChangePolicy -+-> Of -> label; "": the runtime labels the files
//	the type, or CSIDriver's seLinuxMount '
//
// All pods that have a volume at a time must have it with the same label: Conflict. Since when this
// is an error depends on the volume's access mode and on feature gates: Mounts. Before, it is a
// warning, and counted.
package selinux
