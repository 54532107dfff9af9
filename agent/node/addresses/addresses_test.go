package addresses

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/mailbox"
)

// scene is a host: "own=10.0.0.1,fd00::1 dns=... route4=... route6=...".
type scene struct {
	own, dns, route4, route6 []net.IP
	asked                    []string // names that DNS was asked for
	broken                   error
}

func parseScene(text string) *scene {
	s := &scene{}
	for word := range strings.FieldsSeq(text) {
		key, list, _ := strings.Cut(word, "=")
		into := map[string]*[]net.IP{
			"own": &s.own, "dns": &s.dns, "route4": &s.route4, "route6": &s.route6}[key]
		*into = parse(list)
	}
	return s
}

func parse(list string) (out []net.IP) {
	for text := range strings.SplitSeq(list, ",") {
		if text != "" {
			out = append(out, net.ParseIP(text))
		}
	}
	return out
}

func (s *scene) host() host {
	return host{
		addresses: func() ([]net.IP, error) { return s.own, s.broken },
		routed: func(v6 bool) []net.IP {
			if v6 {
				return s.route6
			}
			return s.route4
		},
		lookUp: func(ctx context.Context, name string) []net.IP {
			s.asked = append(s.asked, name)
			return s.dns
		},
	}
}

func TestFind(t *testing.T) {
	const bridges = "own=127.0.0.1,172.17.0.1,10.0.0.5,fd00::5,::1 "
	for name, test := range map[string]struct {
		config Config
		was    string
		host   string
		want   string
		err    string
	}{
		"the default route's, not the first": {host: bridges + "route4=10.0.0.5", want: "10.0.0.5"},
		"what DNS has":                       {host: bridges + "route4=10.0.0.5 dns=172.17.0.1", want: "172.17.0.1"},
		"DNS has another host's":             {host: bridges + "route4=10.0.0.5 dns=10.9.9.9", want: "10.0.0.5"},
		"DNS has loopback":                   {host: bridges + "route4=10.0.0.5 dns=127.0.0.1", want: "10.0.0.5"},
		"DNS has both families":              {host: bridges + "dns=fd00::5,10.0.0.5", want: "10.0.0.5"},
		"IPv6 preferred": {config: Config{Asked: parse("::")},
			host: bridges + "dns=10.0.0.5,fd00::5", want: "fd00::5"},
		"IPv6 preferred, by route": {config: Config{Asked: parse("::")},
			host: bridges + "route4=10.0.0.5 route6=fd00::5", want: "fd00::5"},
		"IPv4 preferred": {config: Config{Asked: parse("0.0.0.0")},
			host: bridges + "dns=fd00::5,10.0.0.5", want: "10.0.0.5"},
		"IPv6 preferred, and there is none": {config: Config{Asked: parse("::")},
			host: "own=127.0.0.1,10.0.0.5 route6=10.0.0.5", want: "10.0.0.5"},
		"only IPv6":              {host: "own=127.0.0.1,::1,fe80::1,fd00::5", want: "fd00::5"},
		"no route":               {host: "own=127.0.0.1,169.254.1.1,10.0.0.5", want: "10.0.0.5"},
		"the name is one":        {config: Config{Node: "10.1.1.1"}, host: bridges, want: "10.1.1.1"},
		"no network":             {host: "own=127.0.0.1,::1,fe80::1", err: "no interface that is up has a global address; connect the host"},
		"no network, on its own": {config: Config{Standalone: true}, host: "own=127.0.0.1", want: "127.0.0.1"},
		"DNS is not asked":       {config: Config{Standalone: true}, host: bridges + "route4=10.0.0.5 dns=172.17.0.1", want: "10.0.0.5"},
		"asked for":              {config: Config{Asked: parse("172.17.0.1")}, host: bridges + "route4=10.0.0.5", want: "172.17.0.1"},
		"two":                    {config: Config{Asked: parse("fd00::5,10.0.0.5")}, host: bridges, want: "fd00::5,10.0.0.5"},
		"asked for, not here": {config: Config{Asked: parse("10.0.0.5,fd00::9")}, host: bridges,
			err: "--node-ip fd00::9 is on none of the host's interfaces that are up; give one of [127.0.0.1 172.17.0.1 10.0.0.5 fd00::5 ::1]"},
		"it stays":   {was: "172.17.0.1", host: bridges + "route4=10.0.0.5 dns=10.0.0.5", want: "172.17.0.1"},
		"it is gone": {was: "10.0.0.4", host: bridges + "route4=10.0.0.5", want: "10.0.0.5"},
		"the network came": {config: Config{Standalone: true}, was: "127.0.0.1",
			host: bridges + "route4=10.0.0.5", want: "10.0.0.5"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.config.Node == "" {
				test.config.Node = "node"
			}
			s := parseScene(test.host)
			got, err := test.config.find(t.Context(), s.host(), parse(test.was))
			if test.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.err) {
					t.Fatalf("%v, %v; want %q", got, err, test.err)
				}
				return
			}
			if list := strings.Join(texts(got), ","); err != nil || list != test.want {
				t.Errorf("%s, %v; want %s", list, err, test.want)
			}
			if test.config.Standalone && len(s.asked) > 0 {
				t.Errorf("DNS was asked for %q", s.asked)
			}
		})
	}
}

// TestRun: changes are followed and published; failures to read change nothing.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parseScene("")
		a := &Addresses{cfg: Config{Node: "node"}, host: s.host()}
		a.look(t.Context())
		changes := mailbox.Subscribe(a.Changes())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		for _, step := range []struct {
			own      string
			broken   error
			want     []v1.NodeAddress
			reported bool
		}{
			{},
			{own: "10.0.0.1", reported: true, want: both("10.0.0.1")},
			{own: "10.0.0.1", want: both("10.0.0.1")},
			{broken: errors.New("no netlink"), want: both("10.0.0.1")},
			{want: both("10.0.0.1")}, // an old address is better than none
			{own: "10.0.0.2", reported: true, want: both("10.0.0.2")},
		} {
			s.own, s.broken = parse(step.own), step.broken
			time.Sleep(10 * time.Second)
			synctest.Wait()
			reported := false
			select {
			case <-changes:
				reported = true
			default:
			}
			if got := a.OfNode(); reported != step.reported || !slices.Equal(got, step.want) {
				t.Errorf("%+v: %v, told %t", step, got, reported)
			}
		}
		cancel()
		<-done
	})
}

func both(ip string) []v1.NodeAddress {
	return []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: ip}, {Type: v1.NodeHostName, Address: "node"}}
}

// TestProvided: a cloud controller manager's addresses win in the end, and --node-ip's apply first.
func TestProvided(t *testing.T) {
	written := &v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
		{Type: v1.NodeExternalIP, Address: "203.0.113.1"},
		{Type: v1.NodeInternalDNS, Address: "node.internal"},
		{Type: v1.NodeInternalIP, Address: "10.0.0.7"},
		{Type: v1.NodeInternalIP, Address: "10.0.0.8"},
		{Type: v1.NodeInternalIP, Address: "fd00::7"},
	}}}
	name := []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node"}}
	bare := &v1.Node{Status: v1.NodeStatus{Addresses: name}}
	for title, test := range map[string]struct {
		asked         string
		object        *v1.Node
		ofNode, known []v1.NodeAddress
		ips           []string
	}{
		"nothing yet":            {ofNode: name, known: name},
		"nothing yet, asked for": {asked: "10.0.0.1", ofNode: both("10.0.0.1"), known: both("10.0.0.1"), ips: []string{"10.0.0.1"}},
		"a family asked for":     {asked: "::", ofNode: both("10.0.0.1"), known: both("10.0.0.1"), ips: []string{"10.0.0.1"}},
		"the name alone":         {object: bare, ofNode: name, known: name},
		"written": {object: written, ofNode: name, known: written.Status.Addresses,
			ips: []string{"10.0.0.7", "fd00::7"}},
		"written, other than asked for": {asked: "10.0.0.1", object: written, ofNode: both("10.0.0.1"),
			known: written.Status.Addresses, ips: []string{"10.0.0.7", "fd00::7"}},
	} {
		a := &Addresses{cfg: Config{Node: "node", Provided: true, Asked: parse(test.asked)},
			host: parseScene("own=10.0.0.1").host()}
		a.look(t.Context())
		a.Follow(func() *v1.Node { return test.object })
		if got := a.OfNode(); !slices.Equal(got, test.ofNode) {
			t.Errorf("%s: of the node %v", title, got)
		}
		if got := a.Known(); !slices.Equal(got, test.known) {
			t.Errorf("%s: known %v", title, got)
		}
		if got := a.IPs(); !slices.Equal(got, test.ips) {
			t.Errorf("%s: %q", title, got)
		}
	}
}

func TestOfPod(t *testing.T) {
	for _, test := range []struct{ ips, node, want string }{
		{"10.0.0.1", "", "10.0.0.1"},
		{"10.0.0.1,10.0.0.2", "10.1.1.1", "10.0.0.1"},
		{"fd00::1,10.0.0.1,fd00::2", "10.1.1.1", "10.0.0.1,fd00::1"},
		{"10.0.0.1,fd00::1", "fd00::9", "fd00::1,10.0.0.1"},
		{"10.0.0.1,fd00::1", "fd00::9,10.1.1.1", "fd00::1,10.0.0.1"},
		{"fd00::1", "10.1.1.1", "fd00::1"},
		{"010.000.000.001,FD00:0::1", "10.1.1.1", "10.0.0.1,fd00::1"},
		{"nonsense,10.0.0.1", "10.1.1.1", "10.0.0.1"},
		{"", "10.1.1.1", ""},
	} {
		got := OfPod(strings.Split(test.ips, ","), strings.Split(test.node, ","))
		if strings.Join(got, ",") != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
