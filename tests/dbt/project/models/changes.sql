{{ config(materialized='incremental', incremental_strategy='append', partition_by=['days(changed)', 'bucket(4, id)'], on_schema_change='append_new_columns') }}
select id, changed {% if is_incremental() %}, city {% endif %} from {{ ref('sales') }}
{% if is_incremental() %} where changed > (select max(changed) from {{ this }}) {% endif %}
