package numa_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The guest's machine: two sockets of two NUMA nodes, each node a die with an L3 cache, two cores
// and four threads. What its first node has is partly the kernel's.
const (
	nodes      = 4
	nodeMemory = 640 // MiB
	// hugePages are the pages of 2 MiB of each node.
	hugePages = "16,32,32,32"
)

// distances are not the same in both directions, as between the sockets of real machines.
func distances() [nodes][nodes]int {
	return [nodes][nodes]int{
		{10, 12, 21, 21},
		{12, 10, 21, 21},
		{24, 24, 10, 12},
		{24, 24, 12, 10},
	}
}

// The PCI functions that there may be. Those of igb can have virtual ones.
const (
	nic      = "virtio-net-pci"
	disk     = "virtio-blk-pci"
	physical = "igb"
)

// functions are the PCI functions behind each node's bridge.
type functions [nodes][]string

// None for disks 0 and 2: devices are not spread evenly.
func usual() functions { return functions{{nic}, {nic, disk}, {nic, nic}, {nic, disk}} }

func withPhysical() functions { return functions{{nic}, {physical}, {disk}, {physical}} }

// sockets are how the guest's CPUs are put together. A die is a node; newer emulators, which have
// igb, abort on dies of an old CPU model, and there each node is a socket.
const (
	twoSockets  = "16,sockets=2,dies=2,cores=2,threads=2"
	fourSockets = "16,sockets=4,cores=2,threads=2"
)

// machineArgs describe the machine to qemu.
func machineArgs(m machine) []string {
	const alone = "-nodefaults -no-user-config -no-reboot -display none "
	if m.sockets == "" {
		return strings.Fields(alone + "-accel tcg,thread=multi -machine q35 -cpu Nehalem -smp 2 -m 2048")
	}
	args := strings.Fields(alone +
		// Nehalem: AMD's models have no threads without KVM, later ones of Intel ask for what
		// software emulation does not have.
		"-accel tcg,thread=multi -machine q35 -cpu Nehalem " +
		"-smp " + m.sockets)
	args = append(args, "-m", fmt.Sprint(nodes*nodeMemory))
	for node := range nodes {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=mem%d,size=%dM", node, nodeMemory),
			"-numa",
			fmt.Sprintf("node,nodeid=%[1]d,memdev=mem%[1]d,cpus=%d-%d", node, 4*node, 4*node+3))
		args = append(args, pciArgs(node, m.functions[node])...)
	}
	for from, row := range distances() {
		for to, distance := range row {
			if from != to {
				args = append(args, "-numa",
					fmt.Sprintf("dist,src=%d,dst=%d,val=%d", from, to, distance))
			}
		}
	}
	return args
}

// pciArgs is a PCI bus of the node's own, with its functions at one slot.
func pciArgs(node int, functions []string) []string {
	args := []string{
		"-device", fmt.Sprintf("pxb-pcie,id=bus%d,bus=pcie.0,bus_nr=%d,numa_node=%d",
			node, 32*(node+1), node),
		"-device", fmt.Sprintf("pcie-root-port,id=port%d,bus=bus%[1]d,chassis=%d", node, node+1),
	}
	for i, function := range functions {
		backend := fmt.Sprintf("back%d.%d", node, i)
		device := fmt.Sprintf("%s,bus=port%d,addr=0.%d", function, node, i)
		if i == 0 && len(functions) > 1 {
			device += ",multifunction=on"
		}
		if function != disk {
			args = append(args, "-netdev", "user,restrict=on,id="+backend, "-device",
				device+",netdev="+backend)
			continue
		}
		args = append(args, "-blockdev", "null-co,read-zeroes=on,size=1048576,node-name="+backend,
			"-device", device+",drive="+backend)
	}
	return args
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// bootArgs boot the kernel with the disk as its root. settings become the environment of the first
// process.
func bootArgs(kernel, disk string, settings ...string) ([]string, error) {
	images, err := filepath.Glob(filepath.Join(kernel, "boot/vmlinuz-*"))
	if err != nil || len(images) == 0 {
		return nil, fmt.Errorf("there is no boot/vmlinuz-* in %s: %w", kernel, err)
	}
	line := append([]string{
		"root=/dev/nvme0n1", "rw", "console=ttyS0", "panic=-1", "quiet",
		"mitigations=off", // they cost more than all else in an emulator
		// A CPU that is stuck for twice as many seconds ends the guest.
		"softlockup_panic=1", "watchdog_thresh=20",
		"NUMALET_HUGE=" + hugePages,
	}, settings...)
	args := []string{
		"-blockdev", "driver=file,node-name=root,filename=" + disk,
		"-device", "nvme,serial=root,drive=root,bus=pcie.0",
		"-kernel", slices.Max(images), "-append", strings.Join(line, " "),
	}
	if initrd := filepath.Join(kernel, "boot/initrd"); exists(initrd) {
		args = append(args, "-initrd", initrd)
	}
	return args, nil
}
