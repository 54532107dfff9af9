package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// The feature gates of kubelet 1.37 by stage and default. Locked ones accept only their default.
const (
	gatesGALocked = `
		CPUManagerPolicyOptions CSIServiceAccountTokenSecrets DRAExtendedResource
		DynamicResourceAllocation ExecProbeTimeout HostnameOverride ImageMaximumGCAge ImageVolume
		InPlacePodVerticalScaling InPlacePodVerticalScalingInitContainers InformerResourceVersion
		KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI
		KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing
		MutableCSINodeAllocatableCount NodeDeclaredFeatures NodeLogQuery NodeSwap
		PLEGOnDemandRelist PodObservedGenerationTracking PodReadyToStartContainersCondition
		ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
		RelaxedEnvironmentVariableValidation SELinuxChangePolicy SELinuxMountReadWriteOncePod
		SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions
		UserNamespacesSupport`
	gatesGA = `
		CPUCFSQuotaPeriod ClusterTrustBundleProjection PodCertificateRequest SELinuxMount`
	gatesBetaOn = `
		CPUManagerPolicyBetaOptions ComponentFlagz ComponentStatusz ContainerCheckpoint
		ContainerRestartRules DRAConsumableCapacity EnvFiles ExtendWebSocketsToKubelet
		GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HugepageAwareEviction
		InPlacePodLevelResourcesVerticalScaling KubeletCrashLoopBackOffMax
		KubeletEnsureSecretPulledImages KubeletInUserNamespace KubeletSeparateDiskGC
		KubeletServiceAccountTokenForCredentialProviders MemoryQoS NativeHistograms
		PodLevelResources PodLevelResourcesFixDefaulting PodLevelResourcesFixKubeletQOSClass
		PodsAPI ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile
		ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits
		RotateKubeletServerCertificate TopologyManagerPolicyBetaOptions
		TranslateStreamCloseWebsocketRequests WatchListClient`
	gatesBetaOff = `
		DRAWorkloadResourceClaims GenericWorkload LocalStorageCapacityIsolationFSQuotaMonitoring
		PodAndContainerStatsFromCRI PodLevelResourceManagers`
	gatesAlpha = `
		AtomicWriteVolumeUserFields CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth
		ClientsAllowCBOR ClientsPreferCBOR ContainerStopSignals DRANodeAllocatableResources
		DRAOptionalNodeOperations DefaultPodSysctls EmptyDirVolumeMode EventedPLEG
		GRPCContainerProbeTLS H2CContainerProbe ImageVolumeWithDigest
		InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
		InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScalingSchedulerPreemption
		KubeletAllocatedPodsEndpoint PodLogsQuerySplitStreams QOSReserved
		ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriAPI
		TaintTolerationComparisonOperators TopologyManagerPolicyAlphaOptions
		UserNamespacesHostNetworkSupport VolumeBindMountOptions`
	gatesDeprecatedOnLocked  = `DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion`
	gatesDeprecatedOn        = `KubeletPodResourcesListUseActivePods`
	gatesDeprecatedOffLocked = `GitRepoVolumeDriver`
	gatesDeprecatedOff       = `
		AllowDNSOnlyNodeCSR ChangeContainerStatusOnKubeletRestart
		KubeletRegistrationGetOnExistsOnly`
)

// kubeletVersion is the release whose gates and defaults these are.
const kubeletVersion = "1.37"

// newGates returns the gates at their defaults.
func newGates() (featuregate.MutableVersionedFeatureGate, error) {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	add := func(names string, spec featuregate.FeatureSpec) {
		for _, name := range strings.Fields(names) {
			specs[featuregate.Feature(name)] = spec
		}
	}
	type spec = featuregate.FeatureSpec
	add(gatesGALocked, spec{Default: true, PreRelease: featuregate.GA, LockToDefault: true})
	add(gatesGA, spec{Default: true, PreRelease: featuregate.GA})
	add(gatesBetaOn, spec{Default: true, PreRelease: featuregate.Beta})
	add(gatesBetaOff, spec{PreRelease: featuregate.Beta})
	add(gatesAlpha, spec{PreRelease: featuregate.Alpha})
	deprecated := spec{PreRelease: featuregate.Deprecated}
	add(gatesDeprecatedOff, deprecated)
	deprecated.LockToDefault = true
	add(gatesDeprecatedOffLocked, deprecated)
	deprecated.Default = true
	add(gatesDeprecatedOnLocked, deprecated)
	deprecated.LockToDefault = false
	add(gatesDeprecatedOn, deprecated)

	gates := featuregate.NewVersionedFeatureGate(version.MustParseGeneric(kubeletVersion))
	if err := gates.Add(specs); err != nil {
		return nil, fmt.Errorf("declare feature gates: %w", err)
	}
	if err := logsapi.AddFeatureGates(gates); err != nil {
		return nil, fmt.Errorf("declare logging feature gates: %w", err)
	}
	return gates, nil
}
