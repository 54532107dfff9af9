package cgroups

import "time"

// Kernel bounds of the CPU controller (Documentation/scheduler/sched-bwc.rst).
const (
	MinShares     = 2
	MaxShares     = 262144
	MinQuota      = time.Millisecond
	DefaultPeriod = 100 * time.Millisecond
)

// Shares returns cpu.shares for a CPU request in millicores: 1024 per core, within the kernel's
// bounds.
func Shares(milliCPU int64) uint64 {
	if milliCPU <= 0 {
		return MinShares
	}
	return uint64(min(max(milliCPU*1024/1000, MinShares), MaxShares))
}

// Weight returns cpu.weight (1 to 10000) for cpu.shares (2 to 262144), the mapping of KEP-2254, as
// the kubelet does for pods. opencontainers' library has another mapping, which runc uses for containers.
func Weight(shares uint64) uint64 {
	shares = min(max(shares, MinShares), MaxShares)
	return 1 + (shares-2)*9999/262142
}

// Quota returns cpu.cfs_quota_us for a CPU limit in millicores, in microseconds per period; 0
// without a limit.
func Quota(milliCPU int64, period time.Duration) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*period.Microseconds()/1000, MinQuota.Microseconds())
}

// SharesOf returns cpu.shares for cpu.weight, the inverse of Weight except for rounding.
func SharesOf(weight uint64) uint64 {
	return MinShares + (min(max(weight, 1), 10000)-1)*262142/9999
}

// MilliCPU returns the CPU request in millicores for which Shares gives these shares.
func MilliCPU(shares int64) int64 { return (shares*1000 + 1023) / 1024 }
