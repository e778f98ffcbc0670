-- Health of a TracePipeline for Argo CD, read off its conditions as kstatus does
-- (https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md).
local health = { status = "Progressing", message = "the operator has not looked at it yet" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "it is being deleted"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "the operator has not looked at the newest generation yet"
  return health
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end
local stalled, reconciling, ready = conditions.Stalled, conditions.Reconciling, conditions.Ready
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = stalled.message }
end
local suspended = conditions.Suspended
if suspended ~= nil and suspended.status == "True" then
  return { status = "Suspended", message = suspended.message }
end
if reconciling ~= nil and reconciling.status == "True" then
  return { status = "Progressing", message = reconciling.message }
end
if ready == nil then
  return health
end
if ready.status == "True" then
  return { status = "Healthy", message = ready.message }
end
-- As kstatus sees it: what is not Ready and not Stalled may become so, also of a pipeline that is left alone.
return { status = "Progressing", message = ready.message }
