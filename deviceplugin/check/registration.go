package check

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Names of checks that other checks need.
const (
	registers    = "registers"
	reachable    = "reachable"
	optionsKnown = "options"
)

func registrationChecks() []check {
	request := []check{
		{name: registers, words: words{
			did:      "started the plugin beside a device manager and waited for it to register",
			expected: "a call of Register on kubelet.sock, or a socket in the plugin registry",
			why:      "what does not register has no devices on the node",
			hint: "does the plugin look for kubelet.sock in the directory of the check? Most " +
				"have /var/lib/kubelet/device-plugins as a constant: make it an option, and name " +
				"it in the command as {dir}, or as {registry} for the plugin registry",
		}, run: checkRegisters},
		{name: "version", needs: []string{registers}, words: words{
			did:      "looked at the version of the API that the plugin names",
			expected: "v1beta1",
			why:      "a device manager refuses every other version, and the plugin has no devices",
			hint:     "use the constant Version of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1",
		}, run: checkPart(devicemanager.PartVersion)},
		{name: "resource-name", needs: []string{registers}, words: words{
			did:      "looked at the name of the resource that the plugin registers",
			expected: "the name of an extended resource, such as vendor.com/device",
			why:      "pods can ask for no other name; a device manager refuses the plugin",
			hint: "a domain of your own that does not end in kubernetes.io, a slash, and a " +
				"name",
		}, run: checkPart(devicemanager.PartResource)},
		{name: "endpoint", needs: []string{registers}, words: words{
			did:      "looked at the endpoint that the plugin names",
			expected: "the name of its socket beside kubelet.sock, without a path",
			why:      "the device manager joins it to its own directory, and finds no socket there",
			hint:     "send the last part of the socket's path as the endpoint",
		}, run: checkPart(devicemanager.PartEndpoint)},
	}
	return slices.Concat(request, connectionChecks())
}

// connectionChecks check what follows a good registration.
func connectionChecks() []check {
	acceptable := usable()[:4]
	return []check{
		{name: "serves-first", needs: acceptable, words: words{
			did:      "connected to the plugin's socket before Register was answered",
			expected: "the plugin serves its socket already",
			why: "the kubelet connects before it answers Register, and fails the call when it " +
				"cannot for 10 s: such a plugin never gets there",
			hint: "start the gRPC server first, then call Register",
		}, run: checkServesFirst},
		{name: reachable, needs: acceptable, words: words{
			did:      "connected to the plugin's socket",
			expected: "a gRPC server",
			why:      "a plugin that cannot be connected to has no devices",
			hint: "is the socket made under the name that was registered, and is Serve " +
				"running?",
		}, run: checkReachable, mortal: true},
		{name: optionsKnown, needs: plus(acceptable, reachable), words: words{
			did:      "called GetDevicePluginOptions",
			expected: "an answer, be it an empty one",
			why: "the kubelet asks before it follows the list, and gives the plugin up after " +
				"an error",
			hint: "answer with &v1beta1.DevicePluginOptions{}",
		}, run: checkOptions, mortal: true},
		{name: "options-agree", needs: plus(acceptable, reachable, optionsKnown), words: words{
			did:      "compared the options of Register with those of GetDevicePluginOptions",
			expected: "the same",
			why: "older kubelets took them from Register, newer ones ask: they would behave " +
				"differently",
			hint: "fill in the options of RegisterRequest from the same function",
		}, run: checkOptionsAgree},
		{name: "registry-notice", needs: acceptable, words: words{
			did:      "told the plugin by NotifyRegistrationStatus that it is registered",
			expected: "an answer",
			why: "the kubelet takes an error for a registration that failed and begins anew " +
				"with it",
			hint: "answer with &registerapi.RegistrationStatusResponse{}",
		}, run: checkNotice},
	}
}

func checkRegisters(_ context.Context, b *bench) outcome {
	who, known := b.heard.introduction()
	if !known {
		return failed("nothing came in %s", b.cfg.Patience)
	}
	b.heard.resource = who.resource // it may register others too
	return passed("%s registered by %s", who.resource, who.way)
}

// checkPart checks one part of a registration; other parts may be wrong too.
func checkPart(part devicemanager.RequestPart) func(context.Context, *bench) outcome {
	return func(_ context.Context, b *bench) outcome {
		who, _ := b.heard.introduction()
		if wrong, ok := errors.AsType[*devicemanager.RequestError](who.problem); ok && wrong.Part == part {
			return failed("the plugin is refused: %s", wrong.What)
		}
		return passed("the %s is good", part)
	}
}

// checkServesFirst waits for the outcome of a strict registration. After a refusal the device
// manager continues without Strict, so that the rest can be checked.
func checkServesFirst(ctx context.Context, b *bench) outcome {
	who, _ := b.heard.introduction()
	if who.way == devicemanager.ByRegistry {
		return passed("a plugin of the plugin registry is found by its socket")
	}
	refused := func() string { return b.manager.Inventory().Refused[who.resource] }
	b.pulse.until(ctx, 2*b.cfg.Patience, func() bool {
		return b.reached() || refused() != "" || b.ended()
	})
	if b.reached() {
		return passed("it does")
	}
	b.early = refused()
	b.deaths.blamed = b.subject.Fate() // a refused plugin may end
	if !b.can.start {
		if err := b.serve(); err != nil {
			return failed("%v", err)
		}
	}
	if err := b.ready(ctx); err != nil && !b.reached() {
		return skipped("it cannot be reached afterwards either, see " + reachable)
	}
	return failed("%s", b.early)
}

// reached reports whether the device manager got as far as calling the plugin.
func (b *bench) reached() bool {
	_, asked := b.heard.called(optionsCall)
	return asked
}

func checkReachable(ctx context.Context, b *bench) outcome {
	if !b.until(ctx, func() bool { return b.reached() || b.ended() }) || !b.reached() {
		return failed("%s", cmp.Or(b.resource().Problem, b.early))
	}
	return passed("it answers")
}

func checkOptions(ctx context.Context, b *bench) outcome {
	var asked call
	b.until(ctx, func() bool {
		asked, _ = b.heard.called(optionsCall)
		return asked.ended
	})
	switch {
	case !asked.ended:
		return failed("no answer came in %s", b.cfg.Patience)
	case status.Code(asked.err) == codes.Unimplemented:
		return failed("the plugin does not implement it (UNIMPLEMENTED)")
	case asked.err != nil:
		return failed("%v", asked.err)
	}
	return passed("it answered")
}

func checkOptionsAgree(ctx context.Context, b *bench) outcome {
	who, _ := b.heard.introduction()
	if who.way == devicemanager.ByRegistry {
		return skipped("a plugin of the plugin registry is asked for them only")
	}
	said := cmp.Or(who.options, &v1beta1.DevicePluginOptions{})
	asked, err := b.plugin().options(ctx)
	if err != nil && b.pulse.until(ctx, dying, b.ended) {
		return skipped("the plugin has ended meanwhile") // of ListAndWatch, which is called too
	}
	if err != nil {
		return failed("%v", err)
	}
	if !proto.Equal(said, asked) {
		return warned("Register has {%s}, GetDevicePluginOptions {%s}", optionsOf(said), optionsOf(asked))
	}
	return passed("both say {%s}", optionsOf(asked))
}

// told returns options in words.
func optionsOf(o *v1beta1.DevicePluginOptions) string {
	var on []string
	if o.GetPreStartRequired() {
		on = append(on, "pre_start_required")
	}
	if o.GetGetPreferredAllocationAvailable() {
		on = append(on, "get_preferred_allocation_available")
	}
	return strings.Join(on, ", ")
}

func checkNotice(ctx context.Context, b *bench) outcome {
	who, _ := b.heard.introduction()
	if who.way != devicemanager.ByRegistry {
		return skipped("the plugin registers by Register")
	}
	var notice call
	b.until(ctx, func() bool {
		notice, _ = b.heard.called(notifyCall)
		return notice.ended
	})
	if !notice.ended || notice.err != nil {
		return failed("the call ended with %v", notice.err)
	}
	return passed("it answered")
}
