"""The API in Python: the generated messages (`*_pb2`), and pure helpers that more than one part needs.

resources.py       the table of resources, over which server, client and CLI are generic; absent.py: kinds that are not here
wellknown.py       labels, annotations and taints that mean something to more than one part
wire.py            messages out of parts that are encoded already: an object is encoded once
status.py          refusals as google.rpc.Status, built and read in one place
fences.py          "scheduler/4711": a leadership in words
readonly.py        messages as they are shown to who must not change them

codec.py           objects as Kubernetes' JSON, and back, with everything that is wrong
schema.py          which fields messages have in JSON; scalars.py: what is one value there
documents.py       YAML that remembers its lines, from people who may be hostile
manifest.py        manifests: YAML as objects, everything that is wrong told by file and line
descriptions.py    what the comments in proto/ say of a field
unmodelled.py      fields that this version does not know travel along
nesting.py         how deep messages are nested; jsonextent.py: how many values a document has

names.py           the syntax of names and labels; nodenames.py: sets of node names, by patterns
quantity.py        "500m", exactly; quantities.py: the quantities inside messages
                    times.py: instants; naturals.py: whole numbers that somebody wrote into a text
selectors.py       label and field selectors; fields.py: the fields that each resource can be selected by
merge.py           three-way merge, as `apply` does it
patch.py           merge patches of both kinds; jsonpatch.py: operations, all or none
portions.py        requests that a server takes: few enough items, small enough together

conditions.py      conditions of any status; podstatus.py: whether a pod has ended
defaults.py        what a pod means that does not say
qos.py             which pods go first when a node runs out; tolerations.py: which taints a pod puts up with
machines.py        the shape of virtual machines: options, a file, and the labels that follow
rollouts.py        revisions of a deployment; storageclass.py: of which class a claim or a volume is

jsonrecords.py     dataclasses as JSON, between processes of different versions
explanation.py     why a pod is where it is, as records; dumps.py: what a scheduler holds
"""
