package mock

import (
	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// links returns the links between the GPUs if up[i] NVLinks of GPU i work.
func (m *Machine) links(up []int) prefer.Links {
	out := make(prefer.Links, len(m.GPUs))
	for i := range out {
		out[i] = make([]prefer.Link, len(m.GPUs))
		for j := range out[i] {
			if i != j {
				out[i][j].Path = m.path(i, j)
			}
			if i != j && m.NVLink.Pairs == nil {
				out[i][j].NVLink = min(up[i], up[j]) * m.NVLink.GBps
			}
		}
	}
	for key, count := range m.NVLink.Pairs {
		i, j, err := m.pair(key)
		if err != nil {
			panic(err) // validate has checked it
		}
		speed := min(count, up[i], up[j]) * m.NVLink.GBps
		out[i][j].NVLink, out[j][i].NVLink = speed, speed
	}
	return out
}

// path returns the PCIe path between two GPUs.
func (m *Machine) path(i, j int) prefer.Path {
	a, _ := m.GPUs[i].place()
	b, _ := m.GPUs[j].place()
	common := 0
	for common < min(len(a), len(b)) && a[common] == b[common] {
		common++
	}
	switch {
	case common == 0:
		return prefer.System
	case common == 1:
		return prefer.Node
	case common == 2:
		return prefer.Bridge
	case common == len(a) && common == len(b):
		return prefer.Switch
	default:
		return prefer.Switches
	}
}
