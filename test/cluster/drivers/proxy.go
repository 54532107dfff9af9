package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Proxy stands between an agent and a driver: it registers in the driver's place, passes calls on
// whatever they are, and records them. It is safe for concurrent use.
type Proxy struct {
	instance string

	mu      sync.Mutex
	calls   []*Call
	trouble Trouble
	open    *open // nil: it does not serve
}

// open holds the servers, connections and sockets of a proxy that serves.
type open struct {
	registry, plugin   *grpc.Server
	registrar, driver  *grpc.ClientConn
	registerAt, serves string // sockets
	ended              sync.WaitGroup
}

// Set changes what happens to calls that begin from now on.
func (p *Proxy) Set(t Trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = t
}

// replaces returns what replaces answers now; nil: nothing.
func (p *Proxy) replaces() func(Call, []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble.Answer
}

// Calls returns the calls until now, in the order they began.
func (p *Proxy) Calls() (all []Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		all = append(all, *c)
	}
	return all
}

// sockets are the driver's own, and those where the agent finds the proxy.
type sockets struct{ registrar, driver, registerAt, serves string }

// serve registers with the agent and serves it until close.
func (p *Proxy) serve(s sockets) error {
	o := &open{registerAt: s.registerAt, serves: s.serves,
		registry: grpc.NewServer(),
		plugin:   grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(p.pass))}
	registerapi.RegisterRegistrationServer(o.registry, registration{p: p})
	var err error
	if o.registrar, err = dial(s.registrar); err != nil {
		return err
	}
	if o.driver, err = dial(s.driver); err != nil {
		return err
	}
	plugin, err := listen(s.serves)
	if err != nil {
		return err
	}
	registry, err := listen(s.registerAt)
	if err != nil {
		plugin.Close()
		return err
	}
	p.mu.Lock()
	p.open = o
	p.mu.Unlock()
	o.ended.Go(func() { _ = o.plugin.Serve(plugin) }) // until close
	o.ended.Go(func() { _ = o.registry.Serve(registry) })
	return nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// listen replaces a socket that a killed driver has left. It stays when the listener closes, as
// that of a killed driver.
func listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
	}
	return l, err
}

// close ends all connections and calls. With tidy the sockets are removed first, as by a driver
// that is told to stop.
func (p *Proxy) close(tidy bool) error {
	p.mu.Lock()
	o := p.open
	p.open = nil
	p.mu.Unlock()
	if o == nil {
		return nil
	}
	var errs []error
	if tidy {
		errs = append(errs, os.Remove(o.registerAt), os.Remove(o.serves))
	}
	o.registry.Stop()
	o.plugin.Stop()
	o.ended.Wait()
	return errors.Join(append(errs, o.registrar.Close(), o.driver.Close())...)
}

func (p *Proxy) now() (*open, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return nil, errors.New("the driver's proxy has ended")
	}
	return p.open, nil
}

func (p *Proxy) begin(c Call) (*Call, Trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, &c)
	return &c, p.trouble
}

// end adds an answer, and how the call ended, to its record.
func (p *Proxy) end(c *Call, answer []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		c.answered(answer)
	}
	c.Ended, c.Err = time.Now(), err
}

// registration answers an agent that has found the proxy's socket.
type registration struct {
	p *Proxy
	registerapi.UnsafeRegistrationServer
}

// GetInfo returns what the driver says of itself, with the proxy's endpoint.
func (r registration) GetInfo(ctx context.Context, in *registerapi.InfoRequest) (
	out *registerapi.PluginInfo, err error) {
	c, _ := r.p.begin(Call{Method: "GetInfo", Instance: r.p.instance, Began: time.Now()})
	defer func() { r.p.end(c, nil, err) }()
	o, err := r.p.now()
	if err != nil {
		return nil, err
	}
	out, err = registerapi.NewRegistrationClient(o.registrar).GetInfo(ctx, in)
	if err == nil {
		out.Endpoint = o.serves
	}
	return out, err
}

// NotifyRegistrationStatus passes on whether the agent has accepted the driver.
func (r registration) NotifyRegistrationStatus(ctx context.Context,
	in *registerapi.RegistrationStatus) (out *registerapi.RegistrationStatusResponse, err error) {
	c, _ := r.p.begin(Call{Method: "NotifyRegistrationStatus", Instance: r.p.instance, Began: time.Now()})
	o, err := r.p.now()
	if err == nil {
		out, err = registerapi.NewRegistrationClient(o.registrar).NotifyRegistrationStatus(ctx, in)
	}
	if err == nil && !in.GetPluginRegistered() {
		r.p.end(c, nil, fmt.Errorf("it is refused: %s", in.GetError()))
		return out, nil
	}
	r.p.end(c, nil, err)
	return out, err
}

// pass passes a call on, and its answers back.
func (p *Proxy) pass(_ any, from grpc.ServerStream) (err error) {
	method, _ := grpc.MethodFromServerStream(from)
	ctx := from.Context()
	var request, answer frame
	if err := from.RecvMsg(&request); err != nil {
		return err
	}
	c, trouble := p.begin(newCall(method, p.instance, request))
	defer func() { p.end(c, answer, err) }()
	if err := meet(ctx, trouble.Before, *c); err != nil {
		return err
	}
	o, err := p.now()
	if err != nil {
		return err
	}
	to, err := o.driver.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method,
		grpc.ForceCodecV2(raw{}))
	if err != nil {
		return err
	}
	if err := errors.Join(to.SendMsg(&request), to.CloseSend()); err != nil {
		return err
	}
	for {
		var next frame
		if err := to.RecvMsg(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := meet(ctx, trouble.After, *c); err != nil {
			return err
		}
		if replace := p.replaces(); replace != nil {
			next = replace(*c, next)
		}
		answer = next
		if err := from.SendMsg(&next); err != nil {
			return err
		}
	}
}

// frame is a message that is not looked into.
type frame []byte

// raw is the codec of frames.
type raw struct{}

// Name is the name of the codec for the messages in frames.
func (raw) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(slices.Clone(*v.(*frame)))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*frame) = data.Materialize()
	return nil
}
