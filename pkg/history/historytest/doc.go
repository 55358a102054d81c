// Package historytest is the suite that every store must pass.
//
// # What is here
//
// [Run] runs the suite on one kind of database. A test is named after its section and after what it
// shows. The tables below have a line for each behaviour that a store of durable executions must
// show, and say who shows it in Rondo. Not everything is the store's business: it keeps histories
// and what belongs to them, while messages, their queues and who is given which of them are the
// broker's. The sections keep the numbers by which scenarios of package round name them. There are
// also tests that stand in no table: they show what this store promises beyond that.
//
// # How to read the tables
//
//	store         tests of this suite
//	core          tests of packages that are pure, mostly of package round: x.txt is a scenario in its testdata, * stands for several
//	bus           what it becomes where messages travel, to be shown by the bus' suite
//	worker        what the service that runs activities does about it
//	orchestrator  what the service that runs rounds does about it
//	not           why it does not apply here; what stands behind that shows what happens instead
//
// Where a line names several, each shows a part of it.
//
// What others call the lock of an instance, and the token for it, is here what a turn was decided
// on: the store takes the turn if the instance still stands there. What others keep apart as the
// values of the running execution is here in the one table of values, from the commit on. Replay
// does not read that table: it finds the values in history, which begins with those of the
// execution before.
//
// # 5.1 atomicity
//
//	atomicity_failure_rollback            store: atomicity/atomicity_failure_rollback
//	multi_operation_atomic_ack            store: atomicity/multi_operation_atomic_ack, atomicity/promises_and_values_come_with_their_turn
//	lock_released_only_on_successful_ack  store: atomicity/lock_released_only_on_successful_ack; orchestrator: acknowledges only after the commit
//	concurrent_ack_prevention             store: atomicity/concurrent_ack_prevention
//
// # 5.2 error_handling
//
//	invalid_lock_token_on_ack     store: error_handling/invalid_lock_token_on_ack
//	duplicate_event_id_rejection  store: error_handling/duplicate_event_id_rejection
//	missing_instance_metadata     store: error_handling/missing_instance_metadata
//	corrupted_serialization_data  store: error_handling/corrupted_serialization_data; core: TestMessagesThatBreakTheProtocolAreRefusedWithTheReason
//	lock_expiration_during_ack    store: error_handling/lock_expiration_during_ack
//
// # 5.3 instance_creation
//
//	instance_creation_via_metadata       store: instance_creation/instance_creation_via_metadata
//	no_instance_creation_on_enqueue      store: instance_creation/no_instance_creation_on_enqueue
//	null_version_handling                store: instance_creation/null_version_handling
//	sub_orchestration_instance_creation  store: instance_creation/sub_orchestration_instance_creation, instance_creation/child_beside_its_parent
//
// # 5.4 instance_locking
//
//	exclusive_instance_lock                   orchestrator: one owner pulls from a partition; store: atomicity/concurrent_ack_prevention
//	lock_token_uniqueness                     store: instance_locking/lock_token_uniqueness
//	invalid_lock_token_rejection              store: instance_locking/invalid_lock_token_rejection
//	concurrent_instance_fetching              store: instance_locking/concurrent_instance_fetching; bus: none of many fetches misses what is there
//	completions_arriving_during_lock_blocked  core: round_late_arrivals_next_turn.txt; bus: what comes during a round is in the next batch, in order
//	cross_instance_lock_isolation             store: instance_locking/cross_instance_lock_isolation
//	message_tagging_during_lock               orchestrator: settles the deliveries that the turn has receipts for, and no others
//	ack_only_affects_locked_messages          store: instance_locking/ack_only_affects_locked_messages; bus: acknowledging a message leaves those behind it
//	multi_threaded_lock_contention            store: instance_locking/multi_threaded_lock_contention
//	multi_threaded_no_duplicate_processing    store: instance_locking/multi_threaded_no_duplicate_processing
//	multi_threaded_lock_expiration_recovery   store: instance_locking/multi_threaded_lock_expiration_recovery
//
// # 5.5 lock_expiration
//
//	lock_expires_after_timeout                   bus: what nobody acknowledges in time comes again; store: wakes/a_taken_instance_is_left_alone
//	abandon_releases_lock_immediately            bus: what is given back without a delay comes again at once
//	lock_renewal_on_ack                          bus: once a message is acknowledged, the instance's next one comes at once
//	concurrent_lock_attempts_respect_expiration  bus: until its time is over, nobody else is given it; store: outbox/taken_over_once
//	worker_lock_renewal_success                  bus: a sign of progress starts the time of a work item anew
//	worker_lock_renewal_invalid_token            not: each delivery is answered on its own subject, there is no token that could be wrong
//	worker_lock_renewal_after_expiration         worker: whoever lost an item may go on beside the next; core: ack_duplicate_completion_at_once.txt
//	worker_lock_renewal_extends_timeout          bus: a work item with signs of progress stays hidden beyond its first time
//	worker_lock_renewal_after_ack                bus: a sign of progress does not bring back what was acknowledged
//	abandon_work_item_releases_lock              bus: a work item that is given back comes again at once
//	abandon_work_item_with_delay                 bus: a work item that is given back with a delay comes again after it, not before
//	worker_ack_fails_after_lock_expiry           not: the first answer counts, however late it comes, and history takes one for each schedule
//	orchestration_lock_renewal_after_expiration  store: error_handling/lock_expiration_during_ack; orchestrator: forgets whose turn is refused
//
// # 5.6 queue_semantics
//
//	worker_queue_fifo_ordering                    bus: first published, first given out; store: outbox/messages_keep_their_order, outbox/oldest_first
//	worker_peek_lock_semantics                    bus: only acknowledging removes it; store: outbox/taken_over_once, outbox/removed_by_key
//	worker_ack_atomicity                          worker: publishes the answer, then acknowledges; core: ack_duplicate_completion_at_once.txt
//	timer_delayed_visibility                      bus: is not given out early; core: timer_never_early.txt; store: wakes/nobody_is_taken_before_it_is_due
//	lost_lock_token_handling                      bus: what a dead consumer held comes again; store: outbox/what_was_left_is_found_after_reopening
//	worker_item_immediate_visibility              bus: a work item can be fetched as soon as it is published
//	worker_delayed_visibility_skips_future_items  bus: a delayed work item is not in the way of later ones
//	orphan_queue_messages_dropped                 core: queue_message_before_start.txt, unknown_instance.txt, queue_buffers_without_reader.txt
//
// # 5.7 multi_execution
//
//	execution_isolation                    store: multi_execution/execution_isolation
//	latest_execution_detection             store: multi_execution/latest_execution_detection
//	execution_id_sequencing                store: multi_execution/execution_id_sequencing
//	continue_as_new_creates_new_execution  store: multi_execution/continue_as_new_creates_new_execution
//	execution_history_persistence          store: multi_execution/execution_history_persistence
//
// # 5.8 cancellation
//
//	fetch_returns_running_state_for_active_orchestration              worker: runs what it is given: what is not wanted any more was withdrawn
//	fetch_returns_terminal_state_when_orchestration_completed         core: race_first_wins.txt; bus: what was withdrawn does not come
//	fetch_returns_terminal_state_when_orchestration_failed            core: race_failure_wins.txt; bus: what was withdrawn does not come
//	fetch_returns_terminal_state_when_orchestration_continued_as_new  core: continue_as_new_withdraws.txt; bus: what was withdrawn does not come
//	fetch_returns_missing_state_when_instance_deleted                 worker: runs it like any other; core: unknown_instance.txt
//	renew_returns_running_when_orchestration_active                   worker: goes on as long as its item is in the stream
//	renew_returns_terminal_when_orchestration_completed               worker: cancels the activity when its item was withdrawn
//	renew_returns_missing_when_instance_deleted                       not: deleting withdraws no work, whoever wants that terminates the instance first
//	ack_work_item_none_deletes_without_enqueue                        worker: acknowledges a cancelled item without an answer
//	cancelled_activities_deleted_from_worker_queue                    core: cancel_simple.txt; store: outbox/promises_come_back_as_they_were; bus: even when held
//	ack_work_item_fails_when_entry_deleted                            not: the broker takes the ack; core: race_first_wins.txt
//	renew_fails_when_entry_deleted                                    worker: asks whether its item is still in the stream, and is cancelled if it is not
//	cancelling_nonexistent_activities_is_idempotent                   bus: withdrawing what is not there is no error
//	batch_cancellation_deletes_multiple_activities                    core: queue_race_cancellation_replay.txt; store: outbox/messages_keep_their_order
//	same_activity_in_worker_items_and_cancelled_is_noop               core: handover_cancel.txt; store: outbox/messages_keep_their_order
//	orphan_activity_after_instance_force_deletion                     core: unknown_instance.txt; store: zombies/a_grave_does_not_live
//
// # 5.9 poison_message
//
//	orchestration_attempt_count_starts_at_one             bus: the first delivery of a message is attempt 1
//	orchestration_attempt_count_increments_on_refetch     bus: each delivery again is one attempt more
//	worker_attempt_count_starts_at_one                    bus: the same for work items
//	worker_attempt_count_increments_on_lock_expiry        bus: a work item whose time ran out comes with one attempt more
//	attempt_count_is_per_message                          bus: each message has its own count; core: poison_one_of_many.txt
//	abandon_work_item_ignore_attempt_decrements           bus: giving a work item back on purpose is no attempt
//	abandon_orchestration_item_ignore_attempt_decrements  bus: the same for other messages
//	ignore_attempt_never_goes_negative                    bus: however often a message is given back on purpose, its next attempt is at least 1
//	max_attempt_count_across_message_batch                core: poison_one_of_many.txt
//
// # 5.10 long_polling
//
//	short_poll_returns_immediately            bus: a fetch that does not wait answers at once, with nothing if there is nothing
//	long_poll_waits_for_timeout               bus: a fetch that waits does so for about as long as it was told
//	fetch_respects_timeout_upper_bound        bus: no fetch waits much longer
//	short_poll_work_item_returns_immediately  bus: the same for work items
//	long_poll_work_item_waits_for_timeout     bus: the same for work items
//
// # 5.11 management
//
//	list_instances                                       store: management/list_instances
//	list_instances_by_status                             store: management/list_instances_by_status
//	list_executions                                      store: management/list_executions
//	get_instance_info                                    store: management/get_instance_info
//	get_execution_info                                   store: management/get_execution_info
//	get_system_metrics                                   store: management/get_system_metrics
//	get_queue_depths                                     store: management/get_queue_depths; bus: tells how many messages and work items wait
//	get_instance_stats (history)                         store: management/get_instance_stats_history
//	get_instance_stats (kv, merged view)                 store: management/get_instance_stats_kv
//	get_instance_stats (nonexistent)                     store: management/get_instance_stats_nonexistent
//	read_corrupted_history_returns_error                 store: management/read_corrupted_history_returns_error, load/read_corrupted_history
//	read_with_execution_corrupted_history_returns_error  store: management/read_with_execution_corrupted_history_returns_error
//
// # 5.12 deletion
//
//	delete_terminal_instances                 store: deletion/delete_terminal_instances
//	delete_running_rejected_force_succeeds    store: deletion/delete_running_rejected_force_succeeds
//	delete_nonexistent_instance               store: deletion/delete_nonexistent_instance
//	delete_cleans_queues_and_locks            store: deletion/delete_cleans_queues_and_locks; bus: what waits there finds nobody
//	cascade_delete_hierarchy                  store: deletion/cascade_delete_hierarchy
//	force_delete_prevents_ack_recreation      store: deletion/force_delete_prevents_ack_recreation, zombies/a_turn_is_committed_while_its_instance_is_deleted
//	list_children                             store: deletion/list_children
//	delete_get_parent_id                      store: deletion/delete_get_parent_id
//	delete_get_instance_tree                  store: deletion/delete_get_instance_tree, tree/order_and_depth
//	delete_instances_atomic                   store: deletion/delete_instances_atomic, removal/all_or_nothing, removal/interrupted_anywhere
//	delete_instances_atomic_force             store: deletion/delete_instances_atomic_force
//	delete_instances_atomic_orphan_detection  store: deletion/delete_instances_atomic_orphan_detection, zombies/a_parent_that_must_stay_because_it_has_a_child
//	stale_activity_after_delete_recreate      store: deletion/stale_activity_after_delete_recreate; core: ack_foreign_incarnation_at_once.txt
//
// # 5.13 bulk_deletion
//
//	delete_instance_bulk_filter_combinations      store: bulk_deletion/delete_instance_bulk_filter_combinations
//	delete_instance_bulk_safety_and_limits        store: bulk_deletion/delete_instance_bulk_safety_and_limits
//	delete_instance_bulk_completed_before_filter  store: bulk_deletion/delete_instance_bulk_completed_before_filter
//	delete_instance_bulk_cascades_to_children     store: bulk_deletion/delete_instance_bulk_cascades_to_children
//
// # 5.14 prune
//
//	prune_options_combinations             store: prune/prune_options_combinations
//	prune_safety                           store: prune/prune_safety
//	prune_bulk                             store: prune/prune_bulk, prune/prune_in_pages
//	prune_bulk_includes_running_instances  store: prune/prune_bulk_includes_running_instances
//
// # 5.15 capability_filtering
//
//	fetch_with_filter_none_returns_any_item                store: capability_filtering/fetch_with_filter_none_returns_any_item
//	fetch_with_compatible_filter_returns_item              store: capability_filtering/fetch_with_compatible_filter_returns_item
//	fetch_with_incompatible_filter_skips_item              store: capability_filtering/fetch_with_incompatible_filter_skips_item
//	fetch_filter_skips_incompatible_selects_compatible     store: capability_filtering/fetch_filter_skips_incompatible_selects_compatible
//	fetch_filter_does_not_lock_skipped_instances           store: capability_filtering/fetch_filter_does_not_lock_skipped_instances
//	fetch_filter_null_pinned_version_always_compatible     store: capability_filtering/fetch_filter_null_pinned_version_always_compatible
//	fetch_filter_boundary_versions                         store: capability_filtering/fetch_filter_boundary_versions
//	pinned_version_stored_via_ack_metadata                 store: capability_filtering/pinned_version_stored_via_ack_metadata
//	pinned_version_immutable_across_ack_cycles             store: capability_filtering/pinned_version_immutable_across_ack_cycles
//	continue_as_new_execution_gets_own_pinned_version      store: capability_filtering/continue_as_new_execution_gets_own_pinned_version
//	filter_with_empty_supported_versions_returns_nothing   store: capability_filtering/filter_with_empty_supported_versions_returns_nothing
//	concurrent_filtered_fetch_no_double_lock               store: capability_filtering/concurrent_filtered_fetch_no_double_lock
//	ack_stores_pinned_version_via_metadata_update          store: capability_filtering/ack_stores_pinned_version_via_metadata_update
//	provider_updates_pinned_version_when_told              store: capability_filtering/provider_updates_pinned_version_when_told
//	fetch_corrupted_history_filtered_vs_unfiltered         store: capability_filtering/fetch_corrupted_history_filtered_vs_unfiltered
//	fetch_deserialization_error_increments_attempt_count   orchestrator: counts an attempt for each time that a history could not be read
//	fetch_deserialization_error_eventually_reaches_poison  core: unreadable_history.txt
//	fetch_filter_applied_before_history_deserialization    store: capability_filtering/fetch_filter_applied_before_history_deserialization
//	fetch_single_range_only_uses_first_range               not: the filter is a function that is asked about each row, there are no ranges
//	ack_appends_event_to_corrupted_history                 store: capability_filtering/ack_appends_event_to_corrupted_history; core: unreadable_history.txt
//
// # 5.16 custom_status
//
//	custom_status_set                      store: custom_status/custom_status_set
//	custom_status_clear                    store: custom_status/custom_status_clear
//	custom_status_none_preserves           store: custom_status/custom_status_none_preserves
//	custom_status_version_increments       store: custom_status/custom_status_version_increments
//	custom_status_polling_no_change        store: custom_status/custom_status_polling_no_change, reading/custom_status_polling
//	custom_status_nonexistent_instance     store: custom_status/custom_status_nonexistent_instance
//	custom_status_default_on_new_instance  store: custom_status/custom_status_default_on_new_instance
//
// # 5.17 kv_store
//
//	kv_set_and_get                                  store: kv_store/kv_set_and_get
//	kv_overwrite                                    store: kv_store/kv_overwrite
//	kv_clear_single                                 store: kv_store/kv_clear_single
//	kv_clear_all                                    store: kv_store/kv_clear_all
//	kv_get_nonexistent                              store: kv_store/kv_get_nonexistent
//	kv_snapshot_in_fetch                            store: kv_store/kv_snapshot_in_fetch; core: values.txt
//	kv_snapshot_after_clear_single                  store: kv_store/kv_snapshot_after_clear_single
//	kv_snapshot_after_clear_all                     store: kv_store/kv_snapshot_after_clear_all
//	kv_execution_id_tracking                        store: kv_store/kv_execution_id_tracking
//	kv_cross_execution_overwrite                    store: kv_store/kv_cross_execution_overwrite
//	kv_cross_execution_remove_readd                 store: kv_store/kv_cross_execution_remove_readd
//	kv_prune_preserves_overwritten                  store: kv_store/kv_prune_preserves_overwritten
//	kv_prune_preserves_all_keys                     store: kv_store/kv_prune_preserves_all_keys
//	kv_instance_isolation                           store: kv_store/kv_instance_isolation
//	kv_delete_instance_cascades                     store: kv_store/kv_delete_instance_cascades
//	kv_clear_nonexistent_key                        store: kv_store/kv_clear_nonexistent_key
//	kv_get_unknown_instance                         store: kv_store/kv_get_unknown_instance
//	kv_set_after_clear                              store: kv_store/kv_set_after_clear
//	kv_empty_value                                  store: kv_store/kv_empty_value
//	kv_large_value                                  store: kv_store/kv_large_value, commit/values_of_16_MiB
//	kv_special_chars_in_key                         store: kv_store/kv_special_chars_in_key
//	kv_snapshot_empty                               store: kv_store/kv_snapshot_empty
//	kv_snapshot_cross_execution                     store: kv_store/kv_snapshot_cross_execution
//	kv_prune_current_execution_protected            store: kv_store/kv_prune_current_execution_protected
//	kv_delete_instance_with_children                store: kv_store/kv_delete_instance_with_children
//	kv_clear_isolation                              store: kv_store/kv_clear_isolation
//	kv_delta_snapshot_excludes_current_execution    core: continue_as_new_carries.txt
//	kv_delta_snapshot_includes_completed_execution  core: continue_as_new_carries.txt; store: kv_store/kv_delta_snapshot_includes_completed_execution
//	kv_delta_client_reads_merged                    store: kv_store/kv_delta_client_reads_merged
//	kv_delta_tombstone_overrides_store              store: kv_store/kv_delta_tombstone_overrides_store
//	kv_delta_clear_all_tombstones_store             store: kv_store/kv_delta_clear_all_tombstones_store
//	kv_delta_merged_on_completion                   store: kv_store/kv_delta_merged_on_completion
//	kv_delta_merged_on_can                          store: kv_store/kv_delta_merged_on_can
//	kv_delta_delete_instance_cascades               store: kv_store/kv_delta_delete_instance_cascades
//	kv_delta_prune_untouched_key_survives           store: kv_store/kv_delta_prune_untouched_key_survives
//
// # 5.18 sessions
//
//	non_session_items_fetchable_by_any_worker                       bus: work without a session goes to any worker
//	session_item_claimable_when_no_session                          bus: the first worker that is given an item of a session owns the session
//	session_affinity_same_worker                                    bus: the owner is given the session's further items
//	session_affinity_blocks_other_worker                            bus: others are not
//	different_sessions_different_workers                            bus: several sessions spread over the workers
//	mixed_session_and_non_session_items                             bus: work with and without sessions flows side by side
//	session_claimable_after_lock_expiry                             bus: a session whose owner is silent for too long is free
//	none_session_skips_session_items                                bus: a worker without sessions is given plain work only
//	some_session_returns_all_items                                  bus: a worker with sessions is given both kinds
//	renew_session_lock_active                                       bus: an owner's key of a session that has work is kept alive
//	renew_session_lock_skips_idle                                   bus: the key of one that has been idle for too long is not
//	renew_session_lock_no_sessions                                  bus: keeping no sessions alive is no error
//	cleanup_removes_expired_no_items                                bus: the key of a dead session vanishes by itself
//	cleanup_keeps_sessions_with_pending_items                       bus: a session with work that waits finds an owner again
//	cleanup_keeps_active_sessions                                   bus: the key of a session that is owned stays
//	ack_updates_session_last_activity                               bus: acknowledging a session's item counts as activity
//	renew_work_item_updates_session_last_activity                   bus: so does a sign of progress
//	session_items_processed_in_order                                bus: the items of a session come in the order of their publishing
//	non_session_items_returned_with_session_config                  bus: a worker that owns sessions is still given plain work
//	shared_worker_id_any_caller_can_fetch_owned_session             worker: all slots of a process share its sessions
//	concurrent_session_claim_only_one_wins                          bus: of those that claim a session at once, one gets it
//	session_takeover_after_lock_expiry                              bus: another worker takes over a session whose owner is gone
//	cleanup_then_new_item_recreates_session                         bus: a session that vanished begins anew with its next item
//	abandoned_session_item_retryable                                bus: an item of a session that is given back comes again, with one attempt more
//	abandoned_session_item_ignore_attempt                           bus: one that is given back on purpose comes again with the same count
//	renew_session_lock_after_expiry_returns_zero                    bus: a session's key that has run out is not kept alive, but claimed anew
//	original_worker_reclaims_expired_session                        bus: the former owner may claim it, too
//	activity_lock_expires_session_lock_valid_same_worker_refetches  bus: an item that comes again goes to the session's owner
//	session_lock_expires_new_owner_gets_redelivery                  bus: if the session has a new owner, to that one
//	session_lock_expires_same_worker_reacquires                     bus: an owner whose key ran out owns the session again with the next item it is given
//	both_locks_expire_different_worker_claims                       bus: if both times ran out, anybody may have the item
//	session_lock_expires_activity_lock_valid_ack_succeeds           worker: what runs is finished and answered, though the session was lost
//	session_lock_renewal_extends_past_original_timeout              bus: a session that is kept alive outlasts its first time
//
// # 5.19 tag_filtering
//
//	default_only_fetches_untagged                 bus: a worker without tags is given work without a tag
//	tags_fetches_only_matching                    bus: a worker with tags is given work with these tags only
//	default_and_fetches_untagged_and_matching     bus: a worker may ask for both
//	none_filter_returns_nothing                   not: what runs no activities is an orchestrator, which fetches no work
//	multi_tag_filter                              bus: a worker with several tags is given work of each
//	tag_round_trip_preservation                   core: TestGoldenMessagesAreReadAsTheyWere; store: outbox/promises_come_back_as_they_were
//	any_filter_fetches_everything                 bus: a worker may ask for work of all tags
//	tag_survives_abandon_and_refetch              bus: work that is given back comes again with its tag
//	multi_runtime_tag_isolation                   bus: workers with different, common and equal tags share one stream
//	tag_preserved_through_ack_orchestration_item  store: outbox/promises_come_back_as_they_were; core: timeout_of_tagged_work.txt
//
// # 5.20 race_replay
//
//	orchestration_delayed_abandon_preserves_unlocked_rows  bus: giving messages back with a delay holds back those only; core: poison_one_of_many.txt
//	duplicate_start_preserves_pinned_handler               core: ack_start_is_taken_once.txt; store: error_handling/invalid_lock_token_on_ack
//	continue_as_new_unregistered_backoff                   core: continue_as_new_unregistered_version.txt, order_of_returned.txt; bus: keeps their order
//	continue_as_new_duplicate_start                        core: handover_duplicate_start.txt
//	continue_as_new_transition_delivery                    core: handover_*.txt
//	queue_race_cancellation_replay                         core: queue_race_cancellation_replay.txt, queue_waiting_reader_dropped.txt, TestRandomOrchestrations
//	continue_as_new_queue_race_replay                      core: continue_as_new_held_message.txt, TestRandomOrchestrations
//	queue_replay_version_stamp_roundtrip                   store: race_replay/queue_replay_version_stamp_roundtrip; core: TestGoldenEventsAreReadAsTheyWere
//	positional_wait_race_replay                            core: positional_wait_race_replay.txt
//	legacy_queue_race_decision_preserved                   not: there is one version of the engine so far; core: newer_engine.txt
package historytest
