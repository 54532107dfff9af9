package sim

import (
	"context"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// introduction serves pluginregistration.Registration, the plugin's side of the plugin registry. A
// GetInfo call counts as a Register call and misbehaves like one.
type introduction struct {
	registerapi.UnimplementedRegistrationServer
	plugin *Plugin
}

func (i introduction) GetInfo(
	ctx context.Context, _ *registerapi.InfoRequest,
) (*registerapi.PluginInfo, error) {
	p := i.plugin
	if _, err := p.state.called(ctx, Register); err != nil {
		return nil, err
	}
	return &registerapi.PluginInfo{
		Type: registerapi.DevicePlugin, Name: p.cfg.Resource,
		SupportedVersions: []string{v1beta1.Version},
	}, nil
}

func (i introduction) NotifyRegistrationStatus(
	_ context.Context, outcome *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	p := i.plugin
	if outcome.GetPluginRegistered() {
		p.state.setRegistered()
		p.log.Printf("registered, serving on %s", p.cfg.Socket)
	} else {
		p.log.Printf("registering: %s", outcome.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
