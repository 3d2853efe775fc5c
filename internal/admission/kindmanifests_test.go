package admission_test

// ordinary is what a tenant writes of a kind: the manifest without metadata, in which
// NAME is the object's name, and a change of it.
type ordinary struct {
	manifest, change string
	// makes are the kinds that Kubernetes' controllers make of it.
	makes []string
}

// Parts of manifests.
const (
	podSpec = "{securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: app, image: 'registry.example.com/acme/app:1'," +
		" securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}"
	podTemplate = "{metadata: {labels: {app: NAME}}, spec: " + podSpec + "}"
	jobTemplate = "{template: {metadata: {labels: {job: NAME}}, spec: {restartPolicy: Never, containers: [{name: app, image: 'registry.example.com/acme/app:1'}]}}}"
	selector    = "selector: {matchLabels: {app: NAME}}"
	replicas    = `{"spec":{"replicas":2}}`
	interval    = `{"spec":{"interval":"2h"}}`
	parent      = "parentRefs: [{name: shared, namespace: gateways}]"
)

// ordinaries are what tenants write of each kind that their role allows, by
// RESOURCE.GROUP.
var ordinaries = map[string]ordinary{
	"configmaps":             {manifest: "{apiVersion: v1, kind: ConfigMap, data: {a: b}}", change: `{"data":{"a":"c"}}`},
	"persistentvolumeclaims": {manifest: "{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", change: `{"metadata":{"annotations":{"a":"b"}}}`},
	"pods":                   {manifest: "{apiVersion: v1, kind: Pod, spec: " + podSpec + "}", change: `{"spec":{"activeDeadlineSeconds":3600}}`},
	"podtemplates":           {manifest: "{apiVersion: v1, kind: PodTemplate, template: " + podTemplate + "}", change: `{"template":{"metadata":{"labels":{"a":"b"}}}}`},
	"replicationcontrollers": {manifest: "{apiVersion: v1, kind: ReplicationController, spec: {selector: {app: NAME}, template: " + podTemplate + "}}", change: replicas, makes: []string{"Pod"}},
	"secrets":                {manifest: "{apiVersion: v1, kind: Secret, stringData: {a: b}}", change: `{"stringData":{"a":"c"}}`},
	"serviceaccounts":        {manifest: "{apiVersion: v1, kind: ServiceAccount}", change: `{"metadata":{"annotations":{"a":"b"}}}`},
	"services":               {manifest: "{apiVersion: v1, kind: Service, spec: {selector: {app: NAME}, ports: [{port: 80}]}}", change: `{"spec":{"sessionAffinity":"ClientIP"}}`},

	"daemonsets.apps":                           {manifest: "{apiVersion: apps/v1, kind: DaemonSet, spec: {" + selector + ", template: " + podTemplate + "}}", change: `{"spec":{"minReadySeconds":1}}`, makes: []string{"Pod", "ControllerRevision"}},
	"deployments.apps":                          {manifest: "{apiVersion: apps/v1, kind: Deployment, spec: {" + selector + ", template: " + podTemplate + "}}", change: replicas, makes: []string{"ReplicaSet"}},
	"replicasets.apps":                          {manifest: "{apiVersion: apps/v1, kind: ReplicaSet, spec: {" + selector + ", template: " + podTemplate + "}}", change: replicas, makes: []string{"Pod"}},
	"statefulsets.apps":                         {manifest: "{apiVersion: apps/v1, kind: StatefulSet, spec: {" + selector + ", serviceName: NAME, persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}, template: " + podTemplate + ", volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}", change: replicas, makes: []string{"Pod", "PersistentVolumeClaim", "ControllerRevision"}},
	"cronjobs.batch":                            {manifest: "{apiVersion: batch/v1, kind: CronJob, spec: {schedule: '0 0 1 1 *', jobTemplate: {spec: " + jobTemplate + "}}}", change: `{"spec":{"suspend":true}}`},
	"jobs.batch":                                {manifest: "{apiVersion: batch/v1, kind: Job, spec: " + jobTemplate + "}", change: `{"spec":{"activeDeadlineSeconds":3600}}`, makes: []string{"Pod"}},
	"horizontalpodautoscalers.autoscaling":      {manifest: "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}, maxReplicas: 3}}", change: `{"spec":{"maxReplicas":4}}`},
	"poddisruptionbudgets.policy":               {manifest: "{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 1, " + selector + "}}", change: `{"spec":{"minAvailable":2}}`},
	"ingresses.networking.k8s.io":               {manifest: "{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{host: app.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: app, port: {number: 80}}}}]}}]}}", change: `{"spec":{"ingressClassName":"nginx"}}`},
	"networkpolicies.networking.k8s.io":         {manifest: "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {matchLabels: {app: NAME}}, ingress: [{from: [{podSelector: {}}]}]}}", change: `{"spec":{"egress":[{}]}}`},
	"leases.coordination.k8s.io":                {manifest: "{apiVersion: coordination.k8s.io/v1, kind: Lease, spec: {holderIdentity: one}}", change: `{"spec":{"holderIdentity":"two"}}`},
	"roles.rbac.authorization.k8s.io":           {manifest: "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]}", change: `{"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list"]}]}`},
	"rolebindings.rbac.authorization.k8s.io":    {manifest: "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-flux-view}, subjects: [{kind: ServiceAccount, name: app, namespace: NAMESPACE}, {kind: Group, apiGroup: rbac.authorization.k8s.io, name: developers}]}", change: `{"metadata":{"labels":{"a":"b"}}}`},
	"httproutes.gateway.networking.k8s.io":      {manifest: "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {" + parent + ", hostnames: [app.example.com], rules: [{backendRefs: [{name: app, port: 80}]}]}}", change: `{"spec":{"hostnames":["www.example.com"]}}`},
	"grpcroutes.gateway.networking.k8s.io":      {manifest: "{apiVersion: gateway.networking.k8s.io/v1, kind: GRPCRoute, spec: {" + parent + ", hostnames: [app.example.com], rules: [{backendRefs: [{name: app, port: 80}]}]}}", change: `{"spec":{"hostnames":["www.example.com"]}}`},
	"tlsroutes.gateway.networking.k8s.io":       {manifest: "{apiVersion: gateway.networking.k8s.io/v1, kind: TLSRoute, spec: {" + parent + ", hostnames: [app.example.com], rules: [{backendRefs: [{name: app, port: 443}]}]}}", change: `{"spec":{"hostnames":["www.example.com"]}}`},
	"referencegrants.gateway.networking.k8s.io": {manifest: "{apiVersion: gateway.networking.k8s.io/v1beta1, kind: ReferenceGrant, spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: kinds-other}], to: [{group: '', kind: Service}]}}", change: `{"spec":{"to":[{"group":"","kind":"Service","name":"app"}]}}`},
	"backendtlspolicies.gateway.networking.k8s.io": {manifest: "{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, spec: {targetRefs: [{group: '', kind: Service, name: app}], validation: {hostname: app.example.com, wellKnownCACertificates: System}}}",
		change: `{"spec":{"validation":{"hostname":"www.example.com"}}}`},

	"kustomizations.kustomize.toolkit.fluxcd.io":     {manifest: "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, spec: {interval: 1h, prune: true, serviceAccountName: kinds, sourceRef: {kind: GitRepository, name: app}}}", change: interval},
	"helmreleases.helm.toolkit.fluxcd.io":            {manifest: "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, spec: {interval: 1h, serviceAccountName: kinds, chart: {spec: {chart: app, sourceRef: {kind: HelmRepository, name: app}}}}}", change: interval},
	"buckets.source.toolkit.fluxcd.io":               {manifest: "{apiVersion: source.toolkit.fluxcd.io/v1, kind: Bucket, spec: {interval: 1h, endpoint: s3.example.com, bucketName: acme-dev, region: eu}}", change: interval},
	"gitrepositories.source.toolkit.fluxcd.io":       {manifest: "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, spec: {interval: 1h, url: 'https://git.example.com/acme/app'}}", change: interval},
	"helmcharts.source.toolkit.fluxcd.io":            {manifest: "{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmChart, spec: {interval: 1h, chart: app, sourceRef: {kind: HelmRepository, name: app}}}", change: interval},
	"helmrepositories.source.toolkit.fluxcd.io":      {manifest: "{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, spec: {interval: 1h, url: 'https://charts.example.com'}}", change: interval},
	"ocirepositories.source.toolkit.fluxcd.io":       {manifest: "{apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository, spec: {interval: 1h, url: 'oci://registry.example.com/acme/app'}}", change: interval},
	"alerts.notification.toolkit.fluxcd.io":          {manifest: "{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Alert, spec: {providerRef: {name: app}, eventSources: [{kind: Kustomization, name: '*'}]}}", change: `{"spec":{"summary":"a"}}`},
	"providers.notification.toolkit.fluxcd.io":       {manifest: "{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Provider, spec: {type: slack, address: 'https://hooks.example.com/x'}}", change: `{"spec":{"channel":"a"}}`},
	"receivers.notification.toolkit.fluxcd.io":       {manifest: "{apiVersion: notification.toolkit.fluxcd.io/v1, kind: Receiver, spec: {type: github, secretRef: {name: app}, resources: [{kind: GitRepository, name: app}]}}", change: `{"spec":{"events":["push"]}}`},
	"imagepolicies.image.toolkit.fluxcd.io":          {manifest: "{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImagePolicy, spec: {imageRepositoryRef: {name: app}, policy: {semver: {range: '>=1'}}}}", change: `{"spec":{"policy":{"semver":{"range":">=2"}}}}`},
	"imagerepositories.image.toolkit.fluxcd.io":      {manifest: "{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImageRepository, spec: {interval: 1h, image: registry.example.com/acme/app}}", change: interval},
	"imageupdateautomations.image.toolkit.fluxcd.io": {manifest: "{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImageUpdateAutomation, spec: {interval: 1h, sourceRef: {kind: GitRepository, name: app}, git: {commit: {author: {email: a@example.com}}}}}", change: interval},
	"artifactgenerators.source.extensions.fluxcd.io": {manifest: "{apiVersion: source.extensions.fluxcd.io/v1beta1, kind: ArtifactGenerator, spec: {sources: [{alias: app, kind: GitRepository, name: app}], artifacts: [{name: NAME, copy: [{from: '@app/**', to: '@artifact/'}]}]}}", change: `{"metadata":{"annotations":{"a":"b"}}}`},

	"alertproviders.flagger.app":  {manifest: "{apiVersion: flagger.app/v1beta1, kind: AlertProvider, spec: {type: slack, address: 'https://hooks.example.com/x'}}", change: `{"spec":{"channel":"a"}}`},
	"canaries.flagger.app":        {manifest: "{apiVersion: flagger.app/v1beta1, kind: Canary, spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: app}, service: {port: 80}, analysis: {interval: 1m, threshold: 5, stepWeight: 10, maxWeight: 50}}}", change: `{"spec":{"analysis":{"threshold":6}}}`},
	"metrictemplates.flagger.app": {manifest: "{apiVersion: flagger.app/v1beta1, kind: MetricTemplate, spec: {provider: {type: prometheus, address: 'https://prometheus.example.com'}, query: 'up'}}", change: `{"spec":{"query":"down"}}`},
}
