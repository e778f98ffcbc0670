//! The user's contract: the TracePipeline custom resource
