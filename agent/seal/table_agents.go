package seal

// Where agents keep what makes one machine different from the next is from their own documentation
// on golden images and on removal, or from their sources where a rule says so; the rest is
// remembered from nodes. A rule removes only what the agent makes anew. Where a clone would come up
// without its agent, or without its data, the rule refuses instead.
func agentRules() []Rule {
	const group = "Agents"
	return []Rule{
		{ID: "amazon-agents", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/amazon/ssm/Vault/*", "/var/lib/amazon/ssm/registration", "/var/lib/amazon/ssm/i-*", "/var/lib/amazon/ssm/mi-*", "/var/lib/amazon/ssm/ipc/*",
				"/var/lib/amazon/ssm/runtimeconfig/*", "/var/lib/amazon/ssm/localcommands/*", "/var/lib/amazon/ssm/download/*", "/var/lib/amazon/ssm/daemons/*", "/var/lib/amazon/ssm/credentials",
				"/var/lib/ecs/data/*", "/var/lib/ecs/ecs-anywhere/*", "/opt/aws/amazon-cloudwatch-agent/var/*", "/opt/aws/amazon-cloudwatch-agent/logs/*", "/var/awslogs/state/*", "/var/lib/awslogs/*", "/opt/codedeploy-agent/state/*", "/opt/codedeploy-agent/deployment-root/*"},
			Why: "registrations and state of the SSM, ECS, CloudWatch and CodeDeploy agents; they register the clone again"},
		{ID: "azure-agents", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/opt/azcmagent/agentconfig.json", "/var/opt/azcmagent/certs/*", "/var/opt/azcmagent/tokens/*", "/var/opt/azcmagent/log/*",
				"/var/lib/GuestConfig/Configuration/*", "/var/lib/GuestConfig/gc_agent_config/*", "/var/lib/GuestConfig/ext_mgr_logs/*", "/var/lib/GuestConfig/arc_policy_logs/*",
				"/etc/opt/microsoft/azuremonitoragent/amacoreagent/*", "/var/opt/microsoft/azuremonitoragent/*/*", "/etc/opt/microsoft/omsagent/*/conf/omsadmin.conf",
				"/var/opt/microsoft/omsagent/*/state/*", "/var/opt/microsoft/mdatp/wdavcfg", "/etc/opt/microsoft/mdatp/wdavcfg", "/etc/opt/microsoft/scx/ssl/*", "/etc/opt/omi/ssl/*"},
			Why: "identity that Arc, guest configuration, Azure Monitor, Log Analytics and Defender gave the donor; the extensions set the clone's up"},
		{ID: "agent-identities", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: slicesOf(
				[]string{"/etc/datadog-agent/auth/*", "/opt/datadog-agent/run/*"},
				[]string{"/opt/splunk*/etc/instance.cfg", "/opt/splunk*/var/lib/splunk/*"},
				[]string{"/opt/Elastic/Agent/fleet.enc*", "/opt/Elastic/Agent/state.*", "/opt/Elastic/Agent/data/*/state.*", "/opt/Elastic/Agent/data/*/run/*", "/var/lib/elastic-agent/fleet.enc*",
					"/var/lib/elastic-agent/data/*"},
				[]string{"/var/lib/*beat/meta.json", "/var/lib/*beat/registry", "/var/lib/*beat/*.db"},
				[]string{"/var/lib/dynatrace/oneagent/agent/config/ruxithost.id", "/var/lib/dynatrace/oneagent/agent/runtime/*", "/var/lib/dynatrace/oneagent/agent/watchdog/*"},
				[]string{"/var/db/newrelic-infra/data/*", "/opt/SumoCollector/config/creds/*", "/var/lib/lacework/cache/*"},
				[]string{"/etc/qualys/hostid", "/etc/qualys/cloud-agent/*.db", "/usr/local/qualys/cloud-agent/Default_Config.db", "/etc/tenable_tag", "/opt/nessus_agent/var/nessus/uuid",
					"/opt/nessus_agent/var/nessus/*.db", "/opt/nessus_agent/var/nessus/master.key"},
				[]string{"/var/ossec/etc/client.keys", "/var/ossec/queue/*/*", "/var/osquery/osquery.db", "/opt/orbit/osquery.db", "/opt/orbit/secret-orbit-node-key.txt", "/opt/orbit/identifier"},
				[]string{"/var/lib/netdata/registry/*", "/var/lib/netdata/cloud.d/*", "/var/lib/cmk-agent/*", "/var/lib/icinga2/certs/*", "/var/lib/icinga2/icinga2.state"},
				[]string{"/var/lib/landscape/client/*", "/etc/insights-client/machine-id", "/etc/insights-client/.registered", "/etc/insights-client/.unregistered", "/var/lib/insights/*"},
				[]string{"/var/lib/telegraf/*", "/var/lib/fluent*/*", "/var/lib/td-agent*/*", "/var/lib/promtail/*", "/var/lib/grafana-agent/*", "/var/lib/alloy/*", "/var/lib/vector/*", "/var/lib/otelcol*/*"}),
			Why: "agents that would report all clones as one host; they enrol or register the clone with what their configuration says"},
		{ID: "endpoint-protection", Group: group, Action: Check, Phase: Donor,
			Paths: []string{"/opt/CrowdStrike/falconstore", "/var/opt/CrowdStrike/*", "/opt/sentinelone/configuration/*", "/var/opt/carbonblack/psc/cfg.ini", "/var/opt/ds_agent/dsa_core/ds_agent.config",
				"/opt/Tanium/TaniumClient/client.db", "/opt/Tanium/TaniumClient/TaniumClient.ini", "/opt/rapid7/ir_agent/components/bootstrap/common/bootstrap.cfg", "/opt/sophos-spl/base/etc/*machine_id*",
				"/var/McAfee/agent/keystore/*", "/opt/traps/config/*", "/opt/illumio_ven_data/etc/*"},
			Why: "the agent's identity stands beside what it needs to start: remove it with the agent's own tool (falconctl -d -f --aid, sentinelctl, …) with the agent stopped, or give the pool nodes without it"},
		{ID: "secret-brokers", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/opt/consul/node-id", "/opt/consul/serf/*", "/opt/consul/checks/*", "/opt/consul/services/*", "/opt/consul/checkpoint-signature", "/var/lib/consul/node-id", "/var/lib/consul/serf/*",
				"/opt/nomad/client/*", "/opt/nomad/data/client/*", "/var/lib/nomad/client/*", "/var/lib/vault-agent/*", "/opt/vault-agent/token*", "/etc/vault.d/secret-id", "/etc/vault.d/role-id",
				"/var/lib/teleport/*", "/etc/boundary.d/auth_token"},
			Why: "tokens and node identities of Consul, Nomad, Vault, Teleport and Boundary"},
		{ID: "build-agents", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: slicesOf(
				[]string{"/opt/azagent/.agent", "/opt/azagent/.credentials*", "/azagent/.credentials*", "/opt/vsts-agent*/.credentials*", "/opt/actions-runner/.runner", "/opt/actions-runner/.credentials*",
					"/etc/gitlab-runner/.runner_system_id", "/var/lib/buildkite-agent/.buildkite*"},
				userPaths("actions-runner/.runner", "actions-runner/.credentials*", "azagent/.credentials*", "myagent/.credentials*", ".jenkins")),
			Why: "registrations of build agents: clones would take each other's jobs"},
		{ID: "management-state", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: slicesOf(
				[]string{"/opt/puppetlabs/puppet/cache/client_data/*", "/opt/puppetlabs/puppet/cache/state/*", "/opt/puppetlabs/puppet/cache/facts.d/*", "/opt/puppetlabs/puppet/public/*",
					"/var/lib/puppet/yaml/*", "/var/lib/puppet/client_data/*", "/var/lib/puppet/state/*", "/var/lib/puppet/client_yaml/*"},
				[]string{"/var/chef/*", "/var/cache/chef/*", "/etc/chef/client.pem", "/etc/cinc/client.pem", "/var/cache/salt/*", "/var/lib/salt/pki/*", "/etc/salt/grains"},
				[]string{"/var/cfengine/ppkeys/localhost.*", "/var/cfengine/state/*", "/var/cfengine/outputs/*", "/var/lib/rudder-agent/*"},
				userPaths(".ansible")),
			Why: "what Puppet, Chef, Salt, CFEngine and Ansible recorded of the donor: catalogs hold passwords, names and facts are the donor's"},
	}
}

func dataRules() []Rule {
	const group = "Data and disks"
	return []Rule{
		{ID: "control-plane", Group: group, Action: Check, Phase: Donor,
			Paths: []string{"/var/lib/etcd/member", "/var/lib/rancher/*/server/*", "/var/lib/k0s/pki", "/var/lib/k0s/etcd", "/var/snap/microk8s/current/credentials/*", "/var/snap/microk8s/current/var/kubernetes/backend/*"},
			Why:   "the cluster's own database and keys: a control plane node cannot be a donor"},
		{ID: "workload-data", Group: group, Action: Check, Phase: Donor,
			Paths: []string{"/opt/local-path-provisioner/*", "/var/local-path-provisioner/*", "/var/lib/rancher/*/storage/*", "/var/lib/longhorn/replicas/*", "/var/openebs/*/*", "/var/lib/rook/*",
				"/var/lib/ceph/*/*", "/var/lib/glusterd/*", "/var/lib/docker/volumes/*/_data/*", "/var/lib/containers/storage/volumes/*/_data/*", "/var/lib/nerdctl/*/volumes/*/*",
				"/var/lib/mysql/*", "/var/lib/postgresql/*/*/*", "/var/lib/pgsql/*/*", "/var/lib/mongodb/*", "/var/lib/mongo/*", "/var/lib/redis/*", "/var/lib/cassandra/*/*", "/var/lib/elasticsearch/*",
				"/var/lib/opensearch/*", "/var/lib/rabbitmq/*", "/var/lib/rabbitmq/.erlang.cookie", "/var/lib/minio/*", "/var/lib/kafka/*", "/var/lib/zookeeper/*", "/var/lib/influxdb/*", "/var/lib/prometheus/*/*",
				"/var/lib/libvirt/images/*", "/var/lib/kata-containers/*/*"},
			Keep: []string{"/var/lib/glusterd/hooks"},
			Why:  "data of workloads on the OS disk: every clone would carry a copy, and Kamino never deletes such data; take a node without it, or move it to a disk of its own"},
		{ID: "disk-keys", Group: group, Action: Check, Phase: Donor,
			Paths: []string{"/etc/luks/*", "/etc/luks-keys/*", "/etc/cryptsetup-keys.d/*", "/etc/zfs/keys/*", "/boot/luks/*", "/var/db/tang/*"},
			Why:   "keys of encrypted disks: every clone could open the donor's"},
		{ID: "storage-credentials", Group: group, Action: Check, Phase: Donor,
			Paths: slicesOf([]string{"/etc/smbcredentials", "/etc/smbcredentials/*", "/etc/samba/*.cred*", "/etc/blobfuse*/*.cfg", "/etc/blobfuse*/*.yaml", "/etc/fuse_connection.cfg", "/etc/passwd-s3fs",
				"/etc/ceph/*.keyring", "/etc/rclone*.conf"}, userPaths(".smbcredentials", ".passwd-s3fs")),
			Why: "mounts of the clones may need it, so it is not removed, and it is a key to storage that more people could read in the image: mount with an identity, or allow it"},
		{ID: "storage-initiators", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/iscsi/nodes/*", "/var/lib/iscsi/send_targets/*", "/etc/iscsi/nodes/*", "/etc/iscsi/send_targets/*"},
			Why:   "the donor's iSCSI sessions, with their CHAP passwords"},
		{ID: "disk-records", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/etc/zfs/zpool.cache", "/etc/lvm/archive/*", "/etc/lvm/backup/*", "/etc/lvm/cache/*", "/var/lib/smartmontools/*.state", "/var/lib/smartmontools/*.csv", "/run/blkid/*"},
			Why:   "what the donor recorded of its own disks"},
		{ID: "mdadm", Group: group, Action: Edit, Phase: Donor, Change: dropArrays, Paths: []string{"/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"},
			Why: "arrays of the donor's data disks, by UUID; arrays are found by their superblocks without"},
		{ID: absentDisks, Group: group, Action: Check, Phase: Donor, Paths: absentPlaces,
			Why: "a clone does not have this disk: its boot waits 90 seconds for it and may stop in emergency mode; add nofail to the line, or remove it"},
		{ID: "fstab-credentials", Group: group, Action: Check, Phase: Donor, Only: mountsWithPassword, Paths: []string{"/etc/fstab", "/etc/auto.*", "/etc/systemd/system/*.mount"},
			Why: "a password among the options of a mount: use credentials= with a file that the first boot writes, or an identity"},
	}
}
