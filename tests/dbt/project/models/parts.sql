{{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by='id') }}
select total, id from {{ ref('sales') }} {% if is_incremental() %} where id = 2 {% endif %}
