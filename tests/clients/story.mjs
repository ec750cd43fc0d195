// Prints one JSON object of what it has seen.
import * as k8s from '@kubernetes/client-node';

const namespace = process.env.NAMESPACE;
const config = new k8s.KubeConfig();
config.loadFromFile(process.env.KUBECONFIG);
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const seen = {};
const pod = (name) => ({
  metadata: { name, labels: { app: name } },
  spec: { containers: [{ name: 'main', image: 'nginx:1' }] },
});

const events = [];
const list = () => core.listNamespacedPod({ namespace, labelSelector: 'app=a' });
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/pods`, list, 'app=a');
const deleted = new Promise((resolve) => {
  informer.on('add', () => events.push('add'));
  informer.on('delete', () => { events.push('delete'); resolve(); });
});
await informer.start();

seen.created = (await core.createNamespacedPod({ namespace, body: pod('a') })).metadata.name;
const patch = [{ op: 'add', path: '/metadata/labels/x', value: '1' }];
const options = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch);
seen.labels = (await core.patchNamespacedPod({ namespace, name: 'a', body: patch }, options)).metadata.labels;

const labels = { app: 'web' };
const template = { metadata: { labels }, spec: pod('web').spec };
const web = { metadata: { name: 'web' }, spec: { replicas: 1, selector: { matchLabels: labels }, template } };
await apps.createNamespacedDeployment({ namespace, body: web });
const scale = await apps.readNamespacedDeploymentScale({ namespace, name: 'web' });
scale.spec = { replicas: 2 };
delete scale.metadata.resourceVersion; // the controller may write the status meanwhile
seen.replicas = (await apps.replaceNamespacedDeploymentScale({ namespace, name: 'web', body: scale })).spec.replicas;

for (const name of ['p0', 'p1', 'p2']) {
  await core.createNamespacedPod({ namespace, body: { ...pod(name), metadata: { name, labels: { page: 'yes' } } } });
}
seen.pages = [];
let _continue;
do {
  const page = await core.listNamespacedPod({ namespace, labelSelector: 'page', limit: 2, _continue });
  seen.pages.push(...page.items.map((each) => each.metadata.name));
  _continue = page.metadata._continue;
} while (_continue);

try {
  await core.readNamespacedPod({ namespace, name: 'nothing' });
} catch (error) {
  seen.missing = [error.code, JSON.parse(error.body).reason];
}

const phase = async () => (await core.readNamespacedPod({ namespace, name: 'a' })).status.phase;
const deadline = Date.now() + 60_000;
while ((await phase()) !== 'Running' && Date.now() < deadline) {
  await new Promise((resolve) => setTimeout(resolve, 50));
}
try {
  await new k8s.Exec(config).exec(namespace, 'a', 'main', ['true'], process.stderr, process.stderr, null, false);
  seen.exec = 'opened';
} catch (error) {
  seen.exec = error.message ?? error.error?.message ?? String(error);
}

await core.deleteNamespacedPod({ namespace, name: 'a', gracePeriodSeconds: 0 });
await deleted;
await informer.stop();
seen.events = events;
console.log(JSON.stringify(seen));
process.exit(0);
