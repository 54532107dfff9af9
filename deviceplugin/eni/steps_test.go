package eni

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestSteps(t *testing.T) {
	prefix := netip.MustParsePrefix
	was := State{Name: "eth1", MAC: "02:00:00:00:00:03", AltNames: []string{"enp1s0"},
		MTU: 1500, Queue: 1000, Up: true, Settings: Settings{GSOSize: 65536, GROSize: 65536},
		Addresses: []netip.Prefix{prefix("10.0.1.5/24")}}
	down := was
	down.Up, down.Addresses = false, nil
	for name, tt := range map[string]struct {
		was   State
		is    func(*Link)
		taken string
		want  string
	}{
		"as it was":      {was: was, want: ""},
		"down as it was": {was: down, want: ""},
		"came home": {was: was, is: func(l *Link) { l.State.Up, l.State.Addresses = false, nil },
			want: "set up, add address 10.0.1.5/24"},
		"came home, down": {was: down, is: func(l *Link) { l.State.Name = "dev3" },
			want: `name "eth1"`},
		"another has its name": {was: was, taken: "eth1", is: func(l *Link) { l.State.Name = "dev3" },
			want: ""},
		"everything": {was: was, is: func(l *Link) {
			l.Master = 7
			l.State = State{Name: "net1", MAC: "02:ff:00:00:00:03", Alias: "mine", MTU: 9000,
				Queue: 10, AltNames: []string{"a", "eth1"}, Up: true, Promisc: true,
				Multicast: true, XDP: true, Settings: Settings{3, true, true, 20000, 7, 65536},
				Addresses: []netip.Prefix{prefix("192.168.0.1/24"), prefix("10.0.1.5/24")}}
		}, want: `set down, leave its bridge or bond, remove altname "a", remove altname "eth1", ` +
			`name "eth1", add altname "enp1s0", detach the XDP program, ` +
			`set alias "", set MAC address "02:00:00:00:00:03", set MTU 1500, ` +
			`set queue length 1000, leave promiscuous mode, leave all-multicast mode, ` +
			`set group 0, set GSO size 65536, turn multicast on, turn ARP on, ` +
			`remove address 192.168.0.1/24, set up`},
		"another has its altname": {was: was, taken: "enp1s0",
			is: func(l *Link) { l.State.AltNames = nil }, want: ""},
		"had no ARP and no multicast": {was: State{Settings: Settings{NoMulticast: true, NoARP: true}},
			is: func(l *Link) { l.State.Settings = Settings{} }, want: "turn multicast off, turn ARP off"},
		"addresses alone": {was: was, is: func(l *Link) {
			l.State.Addresses = []netip.Prefix{prefix("10.0.1.6/24")}
		}, want: "remove address 10.0.1.6/24, add address 10.0.1.5/24"},
	} {
		now := Link{State: tt.was}
		if tt.is != nil {
			tt.is(&now)
		}
		var got []string
		for _, s := range steps(tt.was, now, func(name string) bool { return name == tt.taken }) {
			got = append(got, s.String())
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s: %s\nwant %s", name, text, tt.want)
		}
	}
}

// An IPv6 address that is lost when its interface is set down is added again.
func TestStepsKeepIPv6(t *testing.T) {
	was := State{Name: "eth1", Up: true, Addresses: []netip.Prefix{
		netip.MustParsePrefix("10.0.1.5/24"), netip.MustParsePrefix("fd00::5/64")}}
	now := Link{State: was}
	now.State.Name = "net1"
	all := steps(was, now, func(string) bool { return false })
	last := all[len(all)-1]
	if last.Op != AddAddress || last.Address != was.Addresses[1] ||
		slices.ContainsFunc(all, func(s Step) bool { return s.Address == was.Addresses[0] }) {
		t.Errorf("the steps are %v", all)
	}
}
