// Package csidriver is a CSI driver for tests. Its volumes are files with a real file system, or
// block devices, on loop devices.
//
//	DIR/volumes/ID/volume.json   a volume: name, size, who is attached
//	DIR/volumes/ID/image         its bytes
//	DIR/ephemeral/ID             the files of an inline volume
//	DIR/journal                  a line of JSON at the begin and at the end of each call
//	DIR/orders.json              how calls go wrong (Order)
//
// All state is on the disk, so the driver may be killed at any time and started again, and a test
// reads the journal of a driver that runs in another process.
package csidriver
