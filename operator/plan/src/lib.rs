//! What a pipeline's objects should be: pure, without client, clock or runtime
