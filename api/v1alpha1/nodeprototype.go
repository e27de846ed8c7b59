package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodePrototype keeps the image of one pool of nodes like its best node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=proto
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.status.pool`
// +kubebuilder:printcolumn:name="Next image",type=string,JSONPath=`.status.next.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.status.next.built`,description="Age of the next image"
// +kubebuilder:printcolumn:name="Proven",type=string,JSONPath=`.status.conditions[?(@.type=="Proven")].status`
// +kubebuilder:printcolumn:name="Behind",type=integer,JSONPath=`.status.behind.days`,description="Days of patches that the next node would lack"
// +kubebuilder:printcolumn:name="Running",type=string,JSONPath=`.status.run.step`,description="Step of the run that is at work"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type NodePrototype struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodePrototypeSpec `json:"spec"`
	// Status is derived from the pool, its nodes, images and lease. What is deleted of it is made
	// again by the next pass; only transition times are lost.
	Status NodePrototypeStatus `json:"status,omitempty"`
}

// NodePrototypeList is a list of NodePrototypes.
//
// +kubebuilder:object:root=true
type NodePrototypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePrototype `json:"items"`
}

// NodePrototypeSpec names a pool, and says when and how its image is rebuilt. The flags of the
// controller are the defaults for what is omitted here.
//
// +kubebuilder:validation:XValidation:rule="has(self.pool) != has(self.nodeSelector)",message="set either pool or nodeSelector"
type NodePrototypeSpec struct {
	// Pool is the pool's name, as "kamino status" shows it, or its whole ID.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Pool string `json:"pool,omitempty"`
	// NodeSelector are labels of the pool's nodes, in place of its name. Nodes with all of them
	// must be of one pool.
	//
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Suspend keeps new runs from starting. A run that has started continues to its end, and what
	// an ended process left is still finished.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Window is when runs may start; without one, at any time.
	//
	// +optional
	Window *Window `json:"window,omitempty"`
	// MaxImageAge is the age at which an image is rebuilt even if no node was patched since, for
	// instance 720h. Without it, an image is rebuilt only once a node was patched.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[smh])+$') && duration(self) >= duration('1h')",message="use hours, minutes and seconds, at least 1h, for instance 720h for 30 days"
	// +optional
	MaxImageAge *Duration `json:"maxImageAge,omitempty"`
	// Select says which nodes may be donors.
	//
	// +optional
	Select *Select `json:"select,omitempty"`
	// Patch, where set, patches nodes of the pool before the donor is chosen.
	//
	// +optional
	Patch *Patch `json:"patch,omitempty"`
	// Prove says what an image goes through before new nodes boot from it.
	//
	// +kubebuilder:default={}
	// +optional
	Prove Prove `json:"prove,omitempty"`
	// Promote says who makes an image that passed its proof what new nodes boot from: the
	// controller, or a person with "kamino promote" or the annotation kamino.dev/promote.
	//
	// +kubebuilder:default=Automatic
	// +optional
	Promote Promotion `json:"promote,omitempty"`
	// History is how many images that were promoted are kept: the one in use, and those to roll
	// back to.
	//
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=50
	// +kubebuilder:default=3
	// +optional
	History int32 `json:"history,omitempty"`
	// Watch is how long new nodes are watched after a promotion. Where two of the first three, or
	// more than a fifth of at least five, are not Ready in time, the image is withdrawn.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[smh])+$') && duration(self) <= duration('168h')",message="use hours, minutes and seconds, at most 168h, for instance 24h or 90m"
	// +optional
	Watch *Duration `json:"watch,omitempty"`
}

// Duration is in hours, minutes and seconds, for instance 90s, 1h30m or 720h; CEL knows no days.
// A rule of each field checks it, since the message of a pattern would not say what to write.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=32
type Duration string

// Window is a part of certain days, by the clocks of a time zone. It opens at the first moment at
// which those clocks show start, or would have to, and closes at the next at which they show end:
// a time that the clocks skip counts as the moment of the change, one that they show twice as the
// first of the two. A window that lies in skipped time as a whole does not open that day.
//
// +kubebuilder:validation:XValidation:rule="self.start != self.end",message="a window that ends when it starts never opens; leave window out for any time"
type Window struct {
	// Days on which the window opens; without any, on all.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +optional
	Days []Day `json:"days,omitempty"`
	// Start is when it opens, as HH:MM.
	//
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// End is when it closes, as HH:MM; on the next day where that is not after start. Runs that
	// have started continue to their end.
	//
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	End string `json:"end"`
	// TimeZone is a name of the IANA database, for instance Europe/Berlin.
	//
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// Day is a day of the week.
//
// +kubebuilder:validation:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
type Day string

// Signal is an annotation, "condition:" and the type of a condition, or "label:" and a label that
// nodes cannot write.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=320
type Signal string

// Select says which nodes may be donors. The flags of the controller are the defaults for what is
// omitted here.
type Select struct {
	// MinReady is how long a donor must have been Ready.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[smh])+$')",message="use hours, minutes and seconds, for instance 48h for two days or 90m"
	// +optional
	MinReady *Duration `json:"minReady,omitempty"`
	// MinCandidates is how many nodes must be candidates; with fewer, no run starts.
	//
	// +kubebuilder:validation:Minimum=1
	// +optional
	MinCandidates *int32 `json:"minCandidates,omitempty"`
	// RequireLabels are labels that a donor must have, KEY or KEY=VALUE below
	// node-restriction.kubernetes.io, which nodes cannot set on themselves.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=320
	// +optional
	RequireLabels []string `json:"requireLabels,omitempty"`
	// IgnoreAnnotations are annotations of nodes that are never donors.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=320
	// +optional
	IgnoreAnnotations []string `json:"ignoreAnnotations,omitempty"`
	// RejectTainted rejects nodes with taints NoSchedule or NoExecute.
	//
	// +optional
	RejectTainted bool `json:"rejectTainted,omitempty"`
	// LastPatch are the signals that say when a node was patched.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +optional
	LastPatch []Signal `json:"lastPatch,omitempty"`
	// PendingReboot are the signals that say that a node is to be rebooted.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +optional
	PendingReboot []Signal `json:"pendingReboot,omitempty"`
}

// Patch says how nodes are patched before the donor is chosen.
type Patch struct {
	// Nodes is how many of the pool are patched; the image renews the others.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3
	// +kubebuilder:default=1
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// Reboot says whether a patched node is restarted: where what was upgraded needs it, always, or
	// never.
	//
	// +kubebuilder:validation:Enum=Auto;Always;Never
	// +kubebuilder:default=Auto
	// +optional
	Reboot string `json:"reboot,omitempty"`
	// Manager is what upgrades the packages; command is /etc/kamino/patch of the node. Without it,
	// unattended-upgrades if installed, else the package manager.
	//
	// +kubebuilder:validation:Enum=unattended-upgrades;apt;dnf;command
	// +optional
	Manager string `json:"manager,omitempty"`
	// Scope says which updates are installed. Without it, as the manager is configured.
	//
	// +kubebuilder:validation:Enum=All;Security
	// +optional
	Scope string `json:"scope,omitempty"`
	// Release is that of dnf (releasever); required on Amazon Linux 2023.
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`
	// +optional
	Release string `json:"release,omitempty"`
}

// Prove says what an image goes through before new nodes boot from it.
//
// +kubebuilder:validation:XValidation:rule="self.mode != 'None' || !has(self.probe)",message="a probe has no effect where nothing is proved: use mode Canary"
type Prove struct {
	// Mode: Canary starts one instance beside the pool; None accepts an image unproved.
	//
	// +kubebuilder:default=Canary
	// +optional
	Mode ProveMode `json:"mode,omitempty"`
	// Bake is how long a canary is watched once its node is Ready.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[smh])+$') && duration(self) <= duration('24h')",message="use hours, minutes and seconds, at most 24h, for instance 10m or 0s"
	// +kubebuilder:default="10m"
	// +optional
	Bake *Duration `json:"bake,omitempty"`
	// BootBudget is the time for a machine that runs to become a Ready node, for instance 10m; or a
	// factor of what the pool's canaries usually take, for instance 2x.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([0-9]+[smh])+|[0-9]{1,3}([.][0-9]{1,2})?x)$')",message="use minutes and seconds, for instance 10m, or a factor, for instance 2x"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="10m"
	// +optional
	BootBudget string `json:"bootBudget,omitempty"`
	// Probe is a Job as YAML that must succeed on the canary.
	//
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Probe string `json:"probe,omitempty"`
}

// ProveMode is how an image is proved.
//
// +kubebuilder:validation:Enum=Canary;None
type ProveMode string

// The modes.
const (
	ProveCanary ProveMode = "Canary"
	ProveNone   ProveMode = "None"
)

// Promotion is who promotes an image that passed.
//
// +kubebuilder:validation:Enum=Automatic;Manual
type Promotion string

// The ways.
const (
	PromoteAutomatic Promotion = "Automatic"
	PromoteManual    Promotion = "Manual"
)

// AnnotationPromote on a NodePrototype names a version that the controller is to promote; empty, it
// means the newest that passed its proof and waits. The controller takes it off when that is done.
const AnnotationPromote = "kamino.dev/promote"

// AnnotationTold on a NodePrototype is the controller's note of what the services of notifications
// got: whoever takes it off has the last hours told again.
const AnnotationTold = "kamino.dev/told"
